"""A tally as Prometheus metrics, over HTTP on loopback."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Final

from holdfast.doctor.finding import Hazard, Severity, Soundness
from holdfast.doctor.tally import Tally
from holdfast.errors import UsageError

try:
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        Metric,
        SummaryMetricFamily,
    )
    from prometheus_client.registry import Collector
except ImportError as error:
    raise UsageError("--metrics needs prometheus-client: pip install 'holdfast[doctor]'") from error

HOST: Final = "127.0.0.1"
_COUNTERS: Final = {
    "rounds": "Rounds that were begun.",
    "acknowledged": "Canaries that the store acknowledged.",
    "lost": "Acknowledged canaries that were gone when they were looked for.",
    "misordered": "Times that canaries stood in another order than their acks, or numbers went back.",
    "expired_early": "Sessions that were gone before their time.",
    "expired_late": "Sessions that were still there after their time.",
}
_SOUND: Final = {
    Soundness.SOUND: 1.0,
    Soundness.ABSENT: 1.0,
    Soundness.UNSOUND: 0.0,
    Soundness.UNKNOWN: math.nan,
}


class TallyCollector(Collector):
    """Reads the tally when it is asked, so that a scrape shows this moment."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def collect(self) -> Iterator[Metric]:
        """Every metric, with `holdfast_` before its name."""
        tally = self._tally
        for name, words in _COUNTERS.items():
            yield CounterMetricFamily(f"holdfast_canary_{name}", words, getattr(tally, name))
        errors = CounterMetricFamily(
            "holdfast_canary_errors", "Rounds that ended in an error.", labels=["error"]
        )
        for kind, count in sorted(tally.errors.items()):
            errors.add_metric([kind], count)
        yield errors
        yield SummaryMetricFamily(
            "holdfast_canary_round_trip_seconds",
            "From before the append until it was read back.",
            tally.round_trips,
            tally.round_trip_total_s,
        )
        yield from self._gauges()
        yield from self._audit()

    def _gauges(self) -> Iterator[Metric]:
        tally = self._tally
        values = {
            "canary_up": ("1 if the last round ended well.", float(tally.up)),
            "canary_last_round_trip_seconds": ("Of the last round.", tally.round_trip_s),
            "canary_ttl_drift_seconds": (
                "Time that a session has left, less what it should have left.",
                tally.ttl_drift_s,
            ),
            "canary_last_success_timestamp_seconds": (
                "When a round last ended well.",
                tally.last_success,
            ),
        }
        for name, (words, value) in values.items():
            yield GaugeMetricFamily(f"holdfast_{name}", words, value)

    def _audit(self) -> Iterator[Metric]:
        audit = self._tally.audit
        if audit is None:
            return
        findings = GaugeMetricFamily(
            "holdfast_doctor_findings", "Findings now.", labels=["severity"]
        )
        for severity in Severity:
            count = sum(finding.severity is severity for finding in audit.findings)
            findings.add_metric([severity.value], count)
        yield findings
        sound = GaugeMetricFamily(
            "holdfast_doctor_sound",
            "1 sound or not there, 0 unsound, NaN unknown.",
            labels=["hazard"],
        )
        for hazard in Hazard:
            sound.add_metric([hazard.value], _SOUND[audit.sound[hazard]])
        yield sound
        for name in sorted({measure.name for measure in audit.measures}):
            family = GaugeMetricFamily(f"holdfast_{name}", "As the engine says.", labels=["of"])
            for measure in audit.measures:
                if measure.name == name:
                    family.add_metric([measure.of], measure.value)
            yield family


@contextlib.contextmanager
def served(tally: Tally, port: int) -> Iterator[int]:
    """Serve `/metrics` inside the block; the port, where 0 was asked for a free one."""
    registry = CollectorRegistry()
    registry.register(TallyCollector(tally))
    try:
        server, thread = start_http_server(port, addr=HOST, registry=registry)
    except OSError as error:
        raise UsageError(f"port {port} on {HOST} cannot be used: {error}") from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
