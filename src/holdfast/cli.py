"""The `holdfast` command: arguments only. What it prints is in `terminal.py`."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Final

import click

from holdfast import cli_options as shared
from holdfast import cli_store, terminal
from holdfast import completion as offer
from holdfast._version import __version__
from holdfast.errors import EngineMissing, HoldfastError, OutcomeUnknown, UsageError, VerifyError
from holdfast.secrets import SecretUrl, without_passwords

EXIT_BROKEN: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNKNOWN: Final = 3
EXIT_KIT: Final = 4


class Group(click.Group):
    """Commands in the order in which a reader needs them; our errors become exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """As they were declared."""
        del ctx
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The first sentence of each, whole: click cuts it at the width of the screen."""
        lines = [
            (name, inspect.cleandoc(self.commands[name].help or "").partition("\n\n")[0])
            for name in self.list_commands(ctx)
        ]
        with formatter.section("Commands"):
            formatter.write_dl([(name, " ".join(words.split())) for name, words in lines])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what was given: a complaint may quote it, and then without its passwords."""
        ctx.obj = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an error of the tree is told in words, without a traceback."""
        try:
            return super().invoke(ctx)
        except HoldfastError as error:
            terminal.complain(error, ctx.obj)
            ctx.exit(exit_code(error))
        except click.ClickException as error:
            vars(error).update(message=without_passwords(error.message, ctx.obj))
            raise


def exit_code(error: HoldfastError) -> int:
    """2 wrong arguments, 3 unknown, 4 the kit failed, otherwise 1: it was not done."""
    if isinstance(error, UsageError | EngineMissing):
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


for command in cli_store.COMMANDS:
    main.add_command(command)


@main.command(cls=shared.ProjectCommand)
@click.argument("target", default="sqlite", shell_complete=offer.targets)
@click.option("--config", shell_complete=offer.configs, help="The engine's, such as aof-everysec.")
@shared.engine_option
@click.option("--engine-version", help="Its version, such as 7.")
@click.option(
    "--topology",
    shell_complete=offer.topologies,
    help="Several engines that are one service: sentinel or cluster, standby or patroni.",
)
@click.option("--seed", type=int, help="The same seed makes the same plan. Otherwise a new one.")
@click.option(
    "--faults", type=offer.Names(offer.faults), help="All, none, or names; commas between."
)
@click.option("--promises", type=offer.Names(offer.promises), help="Only these; commas between.")
@click.option(
    "--not-claimed", type=offer.Names(offer.promises), help="Promises that this store never made."
)
@click.option("--time", "time_s", type=float, help="Seconds (default 30).")
@click.option(
    "--scenario", shell_complete=offer.scenarios, help="Only this one, such as power-cut."
)
@click.option("--clients", type=int, help="At most so many at a time.")
@click.option(
    "--operations",
    type=offer.Names(offer.operations),
    help="All that each client does in a session, such as append:2,read,forget.",
)
@click.option("--require", type=shared.LEVELS, help="What every ack must survive (default DISK).")
@click.option(
    "--all-configs",
    is_flag=True,
    help="The durability card: what every configuration loses by SIGKILL and power cut; with "
    "--topology, every setup by failover.",
)
@click.option(
    "--shrink",
    "shrink_s",
    metavar="SECONDS",
    type=click.FloatRange(0, 3600),
    default=20.0,
    show_default=True,
    envvar="HOLDFAST_SHRINK",
    help="After a finding: how long to look for a smaller plan that shows it. 0: not at all.",
)
@click.option("--quiet", is_flag=True, help="Print the verdict and what is broken or unknown only.")
@shared.json_option
@click.option("--report", type=shared.FILE, help="Write an HTML page for people.")
@click.option("--summary", type=shared.FILE, help="Add Markdown, as for a CI job's summary page.")
@click.option("--junit", type=shared.FILE, help="Write JUnit XML: a test case for each promise.")
@click.option(
    "--badge", type=shared.FILE, help="Write a badge: FILE.svg, or FILE.json for shields.io."
)
@click.pass_context
def check(
    ctx: click.Context,
    /,
    json_to: Path | None,
    report: Path | None,
    summary: Path | None,
    junit: Path | None,
    badge: Path | None,
    *,
    quiet: bool,
    **asked: Any,
) -> None:
    """Hold a memory store to its promises, on a real engine, under real faults.

    TARGET is one of our stores (sqlite, redis, valkey, postgres), a URL, your own as
    package.module:target or file.py:target, or a framework's such as openai-agents:sqlite.
    [tool.holdfast] of pyproject.toml has the same options. Exit 0 kept, 1 broken, 2 wrong
    arguments, 3 unknown, 4 the kit failed.
    """
    try:
        from holdfast.verify import check_command  # noqa: PLC0415 - the kit loads when used

        outputs = check_command.Outputs(
            json=json_to, report=report, summary=summary, junit=junit, badge=badge, quiet=quiet
        )
        ctx.exit(check_command.run_all(outputs, shared.several(ctx, asked)))
    except KeyboardInterrupt:
        click.echo("unknown: stopped by Ctrl-C before anything was found", err=True)
        ctx.exit(EXIT_UNKNOWN)


@main.command()
@click.argument(
    "folder", metavar="DIR", default=".", type=click.Path(file_okay=False, path_type=Path)
)
@click.option(
    "--engine",
    type=click.Choice(["sqlite", "redis", "postgres"]),
    prompt="Which engine does your store use?",
    help="What your store runs on.",
)
def init(folder: Path, engine: str) -> None:
    """Write my_memory.py and test_my_memory.py, to test a store of yours, in DIR."""
    from holdfast.verify import starter  # noqa: PLC0415 - the kit loads when used

    terminal.show_started(starter.write(folder, engine), engine)


@main.command()
@click.argument("file", metavar="RESULT.json", type=shared.EXISTING)
@click.option("--out", type=shared.FILE, required=True, help="The test file, such as test_lost.py.")
@click.option("--promise", help="Which of the broken ones (default: the first).")
@click.option(
    "--shrink",
    "within_s",
    metavar="SECONDS",
    type=click.FloatRange(1),
    default=120.0,
    show_default=True,
    help="How long to look for the smallest plan.",
)
def reproduce(file: Path, out: Path, promise: str | None, within_s: float) -> None:
    """Turn a broken promise of a result into a pytest file that fails until it is mended."""
    from holdfast.verify import reproduce as kit  # noqa: PLC0415 - the kit loads when used

    terminal.ensure_writable(out)
    found = kit.reproduce(file, promise, within_s, _check_options)
    state = out.with_suffix(".crash.zip") if found.state else None
    if state is not None:
        terminal.write_bytes(found.state, state)
    text = kit.as_test(found, state.name if state else "")
    terminal.write_file(iter([text.rstrip()]), out)
    terminal.show_reproduced(out, found.promise, found.plan.command)


def _check_options(words: list[str]) -> dict[str, Any]:
    """The options of a command line of `holdfast check`, without those of its output."""
    # Without --help: what a file says is data, and nothing is printed because of it.
    given = click.Command.make_context(check, "check", words, help_option_names=[]).params
    outputs = ("json_to", "report", "summary", "junit", "badge", "quiet", "shrink_s")
    return {
        name: value for name, value in given.items() if value is not None and name not in outputs
    }


@main.command()
@click.argument("file", type=shared.EXISTING)
@shared.json_option
@click.pass_context
def judge(ctx: click.Context, file: Path, json_to: Path | None) -> None:
    """Judge a recorded history: exit 0 kept, 1 broken, 3 unknown, 4 not a history."""
    from holdfast.verify.judge import judge_command  # noqa: PLC0415 - the kit loads when used

    result = judge_command.judge_file(file)
    terminal.show_verdict(judge_command.render(result), judge_command.to_json(result), json_to)
    ctx.exit(judge_command.EXIT_CODES[result.verdict])


@main.group()
def capsule() -> None:
    """Keep what a release wrote, and read it back with every later one."""


@capsule.command("create")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.argument("target", default="sqlite", shell_complete=offer.targets)
@click.option(
    "--from",
    "url",
    type=SecretUrl,
    metavar="URL",
    help="Keep this store's data, or this export, as it is.",
)
@click.option("--target", "named", help="As the second argument.")
@shared.engine_option
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


@capsule.command("verify", cls=shared.PrintingCommand)
@click.argument(
    "folders", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option("--target", help="Read with this store instead of the one that wrote it.")
@click.option("--engine", help="Read under this engine, such as valkey.")
@click.option("--engine-version", help="Its version (default: the newest installed).")
@click.option("--config", help="Its configuration (default: the capsule's).")
@shared.json_option
@click.pass_context
def capsule_verify(
    ctx: click.Context, /, folders: tuple[Path, ...], *, json_to: Path | None, **asked: Any
) -> None:
    """Read capsules with today's code, and say exactly what differs.

    Exit 0 same, 1 differs, 2 wrong arguments, 3 cannot be read here, 4 the kit failed.
    """
    from holdfast.verify import capsule as kit  # noqa: PLC0415 - the kit loads when used

    reports = [kit.verify(folder, kit.Today(**asked)) for folder in folders]
    terminal.show_reports(reports, json_to)
    ctx.exit(kit.worst(reports))


@main.command()
@click.argument("target", required=False, type=SecretUrl, envvar="HOLDFAST_STORE")
@click.option("--manifest", type=shared.EXISTING, help="A Kubernetes or Compose file.")
@shared.namespace_option
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
@click.option("--metrics", type=shared.PORT, help="With --watch: port for Prometheus, on loopback.")
@click.option("--rounds", type=click.IntRange(1), help="With --watch: stop after this many rounds.")
@click.option("--sarif", type=shared.FILE, help="With --manifest: write its findings as SARIF.")
@shared.json_option
@click.pass_context
def doctor(ctx: click.Context, /, **asked: Any) -> None:
    """Say what a store or engine would lose as it is configured now; read only.

    TARGET is a URL: redis://, postgresql://, sqlite:///, chroma:///, or http:// of a Chroma.
    Exit 0 sound, 1 findings, 2 wrong arguments, 3 could not look, 4 the kit failed.
    """
    from holdfast.doctor import doctor_command  # noqa: PLC0415 - the kit loads when used

    ctx.exit(doctor_command.run(doctor_command.Asked(**asked)))


@main.command()
@shared.store_option
@click.option("--namespace", default="chat", show_default=True, help="Whose sessions.")
@click.option(
    "--require",
    type=shared.LEVELS,
    default="DISK",
    show_default=True,
    help="What a message must survive before it is shown as saved.",
)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Other than loopback: --token."
)
@click.option("--port", type=shared.PORT, default=8765, show_default=True)
@click.option("--token", envvar="HOLDFAST_CHAT_TOKEN", help="Asked for before anything is shown.")
@click.option(
    "--model-url",
    type=SecretUrl,
    metavar="URL",
    help="A server that speaks the OpenAI protocol, such as http://…/v1.",
)
@click.option("--model", help="Its model. Its key is read from HOLDFAST_MODEL_KEY.")
@shared.embedder_option
@shared.index_option
@click.option(
    "--rate",
    type=click.FloatRange(0.01, 10_000),
    default=2.0,
    show_default=True,
    help="Writes per second and person, in the long run.",
)
@click.option("--secure-cookies", is_flag=True, help="Cookies for HTTPS only: behind TLS.")
@click.option(
    "--proxy",
    metavar="ADDRESSES",
    help="Proxies whose X-Forwarded-For is believed, with commas between them.",
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

    try:
        ctx.exit(serve.run(serve.Asked(**asked)))
    except KeyboardInterrupt:  # how a server is ended: nothing to complain of
        ctx.exit(0)


@main.command(cls=shared.PrintingCommand)
@click.option("--provider", shell_complete=offer.providers, help="Only this one, such as docker.")
@shared.json_option
def engines(provider: str | None, *, json_to: Path | None) -> None:
    """Show the real engines found here, and how to get the others."""
    from holdfast.verify.engines import find_engines, topologies  # noqa: PLC0415 - as above

    found = find_engines(provider)
    terminal.show_engines([*found, *topologies.find_topologies(found)], json_to)


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
