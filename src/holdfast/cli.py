"""The `holdfast` command: arguments only. What it prints is in `terminal.py`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final, TextIO

import click

from holdfast import completion as offer
from holdfast import terminal
from holdfast._version import __version__
from holdfast.connection import connect, existing
from holdfast.contract import Store
from holdfast.errors import HoldfastError, OutcomeUnknown, UsageError, VerifyError

EXIT_BROKEN: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNKNOWN: Final = 3
EXIT_KIT: Final = 4

PAGE: Final = 1000


class Group(click.Group):
    """Commands in the order in which a reader needs them; our errors become exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """As they were declared."""
        del ctx
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an error of the tree is told in words, without a traceback."""
        try:
            return super().invoke(ctx)
        except HoldfastError as error:
            terminal.complain(error)
            ctx.exit(exit_code(error))


def exit_code(error: HoldfastError) -> int:
    """2 wrong arguments, 3 unknown, 4 the kit failed, otherwise 1: it was not done."""
    if isinstance(error, UsageError):
        return EXIT_USAGE
    if isinstance(error, OutcomeUnknown):
        return EXIT_UNKNOWN
    return EXIT_KIT if isinstance(error, VerifyError) else EXIT_BROKEN


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast")
def main() -> None:
    """Memory for LLM apps that does not forget, and the proof.

    Commands that read a store take its URL from --store or the environment variable
    HOLDFAST_STORE; without either it is sqlite:///memory.db.
    """


FILE: Final = click.Path(dir_okay=False, path_type=Path)
PORT: Final = click.IntRange(0, 65535)
EXISTING: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
LEVELS: Final = click.Choice(["MEMORY", "PROCESS", "DISK", "REPLICA"], case_sensitive=False)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
json_file_option = click.option("--json", "json_file", type=FILE, help="Write JSON here.")
store_option = click.option(
    "--store",
    "url",
    envvar="HOLDFAST_STORE",
    default="sqlite:///memory.db",
    show_default=True,
    help="URL of the store.",
)
namespace_option = click.option(
    "--namespace", default="default", show_default=True, help="Which application's sessions."
)
embedder_option = click.option("--embedder", help="minilm (default) or wordllama.")
index_option = click.option(
    "--index", help="chroma:///dir or chroma+http://host:port; otherwise in the engine."
)
engine_option = click.option(
    "--engine", shell_complete=offer.engines, help="The engine that a function target(engine) gets."
)


@contextmanager
def opened(url: str, namespace: str, *, create: bool = False, **more: Any) -> Iterator[Store]:
    """The store of a command. To look at a file that is not there must not create it."""
    with connect(url if create else existing(url), namespace=namespace, **more) as store:
        yield store


@main.command()
@store_option
@namespace_option
@click.option("--prefix", default="", help="Only ids starting with this.")
@click.option("--limit", type=click.IntRange(1), help="Maximum number of results.")
@json_option
def sessions(url: str, namespace: str, prefix: str, limit: int | None, *, as_json: bool) -> None:
    """List live sessions, with their sizes and when they expire."""
    with opened(url, namespace) as store:
        names = islice(_names(store, prefix), limit)
        terminal.show_sessions((store.stat(name) for name in names), as_json)


def _names(store: Store, prefix: str) -> Iterator[str]:
    after: str | None = None
    while page := store.sessions(prefix=prefix, after=after, limit=PAGE):
        yield from page
        after = page[-1]


@main.command()
@click.argument("session")
@store_option
@namespace_option
@click.option("--limit", type=click.IntRange(0), help="Number of messages: the newest.")
@click.option("--before", type=click.IntRange(0), help="Only numbers below this one.")
@click.option("--after", type=click.IntRange(0), help="Only numbers above this one.")
@json_option
def history(session: str, url: str, namespace: str, *, as_json: bool, **page: Any) -> None:
    """Show the messages of a session, oldest first."""
    with opened(url, namespace) as store:
        found = store.history(session, **page)
    terminal.show_history(session, found, as_json)


@main.command()
@click.argument("session")
@store_option
@namespace_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--now", is_flag=True, help="Clean the engine's files at once, while others work.")
@click.option("--full", is_flag=True, help="Also in ways that keep others waiting (VACUUM FULL).")
@json_option
def forget(
    session: str, url: str, namespace: str, *, yes: bool, now: bool, full: bool, as_json: bool
) -> None:
    """Erase a session for good, and say where copies are left."""
    with opened(url, namespace) as store:
        if not yes:
            count = store.stat(session).count
            click.confirm(f"Erase {count} message(s) of {session!r} for good?", abort=True)
        terminal.show_erased(store.forget(session, now="full" if full else now), as_json)


@main.command()
@store_option
@namespace_option
@click.option("--prefix", default="", help="Only ids starting with this.")
@click.option("-o", "--output", type=FILE, help="A file.")
def export(url: str, namespace: str, prefix: str, output: Path | None) -> None:
    """Write every session as JSON Lines, exactly, for `holdfast load`."""
    with opened(url, namespace) as store:
        if output is None:
            terminal.write_lines(store.export(prefix=prefix), sys.stdout)
        else:
            terminal.write_file(store.export(prefix=prefix), output)


@main.command()
@click.argument("file", type=click.File(encoding="utf-8"), default="-")
@store_option
@namespace_option
@json_option
def load(file: TextIO, url: str, namespace: str, *, as_json: bool) -> None:
    """Read sessions from an export; each one is loaded whole or not at all."""
    with opened(url, namespace, create=True) as store:
        terminal.show_loaded(store.load(file), as_json)


@main.command()
@click.argument("source")
@click.argument("target")
@click.option("--from", "kind", required=True, help="Which store, such as langchain-redis.")
@click.option("--table", "place", help="Its table, or the prefix of its keys, if not the default.")
@click.option("--namespace", default="default", show_default=True, help="Of TARGET.")
@click.option("--dry-run", is_flag=True, help="Only read SOURCE, and say what would be moved.")
@json_option
@click.pass_context
def migrate(ctx: click.Context, /, *, as_json: bool, **asked: Any) -> None:
    """Bring the histories of a framework's store over, and read them back.

    SOURCE is only read from. A second run adds what is new and nothing twice. Exit 0 all of it
    is in TARGET, 1 something is not, 2 wrong arguments, 3 unknown.
    """
    from holdfast.integrations import migration  # noqa: PLC0415 - loads when used

    moved = migration.migrate(**asked)
    terminal.show_moved(moved, as_json, dry_run=asked["dry_run"])
    ctx.exit(0 if moved.complete else EXIT_BROKEN)


@main.command()
@click.argument("scope", required=False)
@store_option
@namespace_option
@embedder_option
@index_option
@json_option
def reindex(scope: str | None, url: str, namespace: str, *, as_json: bool, **asked: Any) -> None:
    """Rebuild the index of a scope, or of all, from the log."""
    with opened(url, namespace, **asked) as store:
        terminal.show_reindexed(store.reindex(scope), as_json)


@main.command()
@click.argument("target", default="sqlite", shell_complete=offer.targets)
@click.option("--config", shell_complete=offer.configs, help="The engine's, such as aof-everysec.")
@engine_option
@click.option("--engine-version", help="Its version, such as 7.")
@click.option("--seed", type=int, help="The same seed makes the same plan. Otherwise a new one.")
@click.option(
    "--faults", type=offer.Names(offer.faults), help="All, none, or names; commas between."
)
@click.option("--promises", type=offer.Names(offer.promises), help="Only these; commas between.")
@click.option("--time", "time_s", type=float, help="Seconds (default 30).")
@click.option("--require", type=LEVELS, help="What every ack must survive (default DISK).")
@click.option(
    "--all-configs",
    is_flag=True,
    help="The durability card: what every configuration loses, by SIGKILL and by power cut.",
)
@json_file_option
@click.option("--report", "report_file", type=FILE, help="For people: one HTML file.")
@click.pass_context
def check(
    ctx: click.Context, /, json_file: Path | None, report_file: Path | None, **asked: Any
) -> None:
    """Hold a memory store to its promises, on a real engine, under real faults.

    TARGET is one of our stores (sqlite, redis, valkey, postgres), a URL, your own as
    package.module:target, or a framework's such as openai-agents:sqlite. Exit 0 kept, 1 broken,
    2 wrong arguments, 3 unknown, 4 the kit failed.
    """
    try:
        from holdfast.verify import check_command  # noqa: PLC0415 - the kit loads when used

        ctx.exit(check_command.run(json_file, report_file, asked))
    except KeyboardInterrupt:
        click.echo("unknown: stopped by Ctrl-C before anything was found", err=True)
        ctx.exit(EXIT_UNKNOWN)


@main.command()
@click.argument("file", type=EXISTING)
@json_file_option
@click.pass_context
def judge(ctx: click.Context, file: Path, json_file: Path | None) -> None:
    """Judge a recorded history: exit 0 kept, 1 broken, 3 unknown, 4 not a history."""
    from holdfast.verify.judge import command  # noqa: PLC0415 - the kit loads when used

    result = command.judge_file(file)
    terminal.show_verdict(command.render(result), command.to_json(result), json_file)
    ctx.exit(command.EXIT_CODES[result.verdict])


@main.group()
def capsule() -> None:
    """Keep what a release wrote, and read it back with every later one."""


@capsule.command("create")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.argument("target", default="sqlite", shell_complete=offer.targets)
@click.option("--from", "url", help="Keep this store's data, or this export, as it is.")
@click.option("--target", "named", help="As the second argument.")
@engine_option
@click.option("--engine-version", help="Its version, such as 6.2.")
@click.option("--config", shell_complete=offer.configs, help="Its configuration, as rdb-only.")
@click.option("--namespace", default="default", show_default=True, help="Of --from.")
@click.option("--prefix", default="", help="Of --from: only ids starting with this.")
@click.option("--seed", type=int, default=0, show_default=True, help="What is written.")
@click.option("--about", default="", help="A note for later readers.")
def capsule_create(folder: Path, target: str, named: str | None, **asked: Any) -> None:
    """Make a capsule in DIR, an empty or new directory.

    TARGET is one of our stores (sqlite, redis, valkey, postgres), or your own as
    package.module:target. Sessions of every kind are written through it on a fresh engine, and
    the engine's data are kept with what must be read back.
    """
    from holdfast.verify import capsule as kit  # noqa: PLC0415 - the kit loads when used

    made, refused = kit.create(folder, kit.Origin(target=named or target, **asked))
    terminal.show_capsule(folder, made, refused)


@capsule.command("verify")
@click.argument(
    "folders", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option("--target", help="Read with this store instead of the one that wrote it.")
@click.option("--engine", help="Read under this engine, such as valkey.")
@click.option("--engine-version", help="Its version (default: the newest installed).")
@click.option("--config", help="Its configuration (default: the capsule's).")
@json_option
@click.pass_context
def capsule_verify(
    ctx: click.Context, /, folders: tuple[Path, ...], *, as_json: bool, **asked: Any
) -> None:
    """Read capsules with today's code, and say exactly what differs.

    Exit 0 same, 1 differs, 2 wrong arguments, 3 cannot be read here, 4 the kit failed.
    """
    from holdfast.verify import capsule as kit  # noqa: PLC0415 - the kit loads when used

    reports = [kit.verify(folder, kit.Today(**asked)) for folder in folders]
    terminal.show_reports(reports, as_json)
    ctx.exit(kit.worst(reports))


@main.command()
@click.argument("target", required=False, envvar="HOLDFAST_STORE")
@click.option("--manifest", type=EXISTING, help="A Kubernetes or Compose file.")
@namespace_option
@click.option(
    "--time",
    "time_s",
    type=click.FloatRange(0.1, 3600),
    default=10.0,
    show_default=True,
    help="Seconds that a look may take.",
)
@click.option("--fix", is_flag=True, help="Print the commands that change it; none is run.")
@click.option("--watch", is_flag=True, help="Look again and again until stopped.")
@click.option(
    "--canary", is_flag=True, help="With --watch: write and read back; the only mode that writes."
)
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(0.05, 86400),
    default=10.0,
    show_default=True,
    help="With --watch: seconds between looks.",
)
@click.option("--metrics", type=PORT, help="With --watch: port for Prometheus, on loopback.")
@click.option("--rounds", type=click.IntRange(1), help="With --watch: stop after this many rounds.")
@json_file_option
@click.pass_context
def doctor(ctx: click.Context, /, **asked: Any) -> None:
    """Say what a store or engine would lose as it is configured now; read only.

    TARGET is a URL: redis://, postgresql://, sqlite:///, chroma:///, or http:// of a Chroma.
    Exit 0 sound, 1 findings, 2 wrong arguments, 3 could not look, 4 the kit failed.
    """
    from holdfast.doctor import command  # noqa: PLC0415 - the kit loads when used

    ctx.exit(command.run(command.Asked(**asked)))


@main.command()
@store_option
@click.option("--namespace", default="chat", show_default=True, help="Whose sessions.")
@click.option(
    "--require",
    type=LEVELS,
    default="DISK",
    show_default=True,
    help="What a message must survive before it is shown as saved.",
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Other than loopback: --token."
)
@click.option("--port", type=PORT, default=8765, show_default=True)
@click.option("--token", envvar="HOLDFAST_CHAT_TOKEN", help="Asked for before anything is shown.")
@click.option("--model-url", help="A server that speaks the OpenAI protocol, such as http://…/v1.")
@click.option("--model", help="Its model. Its key is read from HOLDFAST_MODEL_KEY.")
@embedder_option
@index_option
@click.option(
    "--rate",
    type=click.FloatRange(0.01, 10_000),
    default=2.0,
    show_default=True,
    help="Writes per second and person, in the long run.",
)
@click.option(
    "--chaos",
    metavar="ENGINE",
    shell_complete=offer.engines,
    help="Buttons that kill, pause and cut, on a sqlite, redis, valkey or postgres of its own.",
)
@click.pass_context
def chat(ctx: click.Context, /, **asked: Any) -> None:
    """Serve a chat page over a store, on this machine only.

    Needs no model and no network: answers come from what it was told before. With --model-url
    and --model a real model answers, with the context that the store makes.
    """
    from holdfast.chat import serve  # noqa: PLC0415 - the page loads when used

    ctx.exit(serve.run(serve.Asked(**asked)))


@main.command()
@click.option("--provider", shell_complete=offer.providers, help="Only this one, such as docker.")
@json_option
def engines(provider: str | None, *, as_json: bool) -> None:
    """Show the real engines found here, and how to get the others."""
    from holdfast.verify.engines import find_engines  # noqa: PLC0415 - the kit loads when used

    terminal.show_engines(find_engines(provider), as_json)


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    r"""Print the completion script of a shell.

    \b
    bash: eval "$(holdfast completion bash)"
    zsh:  eval "$(holdfast completion zsh)"
    fish: holdfast completion fish | source
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - rarely needed

    kind = get_completion_class(shell)
    if kind is not None:
        click.echo(kind(main, {}, "holdfast", "_HOLDFAST_COMPLETE").source())
