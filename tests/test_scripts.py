"""The scripts that root runs trust nothing that they did not write, and leave services alone."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")


def docker_down(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "scripts" / "docker", "down"],
        env={**os.environ, "HOLDFAST_DOCKER_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@as_root
def test_a_directory_of_another_user_makes_root_kill_nothing_and_remove_nothing(tmp_path: Path):
    folder = tmp_path / "d"
    folder.mkdir()
    with subprocess.Popen(["/bin/sleep", "600"]) as victim:
        (folder / "pid").write_text(f"{victim.pid}\n")
        os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
        done = docker_down(folder)
        alive = victim.poll() is None
        victim.kill()
    assert alive, "root killed a process that somebody else chose"
    assert done.returncode == 3
    assert "nothing in it is trusted" in done.stderr
    assert (folder / "pid").exists()


def test_a_number_that_is_another_processes_by_now_is_not_killed(tmp_path: Path):
    folder = tmp_path / "d"
    folder.mkdir(mode=0o700)
    with subprocess.Popen(["/bin/sleep", "600"]) as victim:
        (folder / "pid").write_text(f"{victim.pid}\n")
        done = docker_down(folder)
        alive = victim.poll() is None
        victim.kill()
    assert alive
    assert done.returncode == 0, done.stderr
    assert not folder.exists()


def test_the_lock_is_in_the_closed_directory_and_not_beside_it(tmp_path: Path):
    """A link under a name that others can guess would have root write to any file."""
    treasure = tmp_path / "treasure"
    treasure.write_text("dear")
    (tmp_path / "d.lock").symlink_to(treasure)
    assert docker_down(tmp_path / "d").returncode == 0
    assert treasure.read_text() == "dear"


def test_a_link_in_the_place_of_the_directory_is_not_followed(tmp_path: Path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kept").write_text("dear")
    (tmp_path / "d").symlink_to(tmp_path / "other")
    assert docker_down(tmp_path / "d").returncode == 3
    assert (tmp_path / "other" / "kept").exists()


SETUP = """
set -euo pipefail
apt_install() { installed=yes; }
tee() { return 1; }
systemctl() {
    case "$*" in
        "cat pgbouncer") [ -n "${installed:-}" ] ;;
        "cat "*) return 0 ;;
        *) echo "systemctl $*" ;;
    esac
}
eval "$(sed -n '/^apt_install_servers()/,/^}/p' scripts/setup)"
apt_install_servers redis-server pgbouncer
"""


def test_setup_turns_off_only_the_services_that_came_with_its_packages():
    done = subprocess.run(
        ["bash", "-c", SETUP], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == ["systemctl --quiet disable pgbouncer"]
