"""The judge: a history in, a verdict out. No clock, file, network or engine."""

from holdfast.verify.judge.decide import judge
from holdfast.verify.judge.verdict import ANOMALIES, JUDGED, Anomaly, JudgeResult, Verdict

__all__ = ["ANOMALIES", "JUDGED", "Anomaly", "JudgeResult", "Verdict", "judge"]
