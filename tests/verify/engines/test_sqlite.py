"""SQLite as an engine of files."""

from __future__ import annotations

import apsw

from holdfast.verify.engines.sqlite import SqliteEngine


def test_files_stay_over_stop_and_start_and_go_with_close(sqlite_engine: SqliteEngine) -> None:
    connection = apsw.Connection(str(sqlite_engine.path))
    connection.execute("CREATE TABLE memory (text)")
    connection.close()
    sqlite_engine.stop()
    assert sqlite_engine.start().path.exists()
    assert sqlite_engine.url == f"sqlite:///{sqlite_engine.path}"
    assert sqlite_engine.version == apsw.sqlite_lib_version()
    assert sqlite_engine.log() == ""
    home = sqlite_engine.data_dir.parent
    sqlite_engine.close()
    assert not home.exists()
