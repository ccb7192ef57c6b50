"""Plugins that other packages bring into every pytest. In the runs that tests start, they cost
ten times the time of ours and are not what is tested."""

from __future__ import annotations

OTHERS = ("langsmith_plugin", "anyio", "valkey", "hypothesispytest")
WITHOUT_OTHERS = tuple(word for name in OTHERS for word in ("-p", f"no:{name}"))
