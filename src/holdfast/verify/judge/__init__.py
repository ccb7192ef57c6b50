"""The judge: a history in, a verdict out. No clock, file, network or engine."""

from holdfast.verify.judge.decide import judge
from holdfast.verify.judge.verdict import ANOMALIES, Anomaly, JudgeResult, Verdict

__all__ = ["ANOMALIES", "Anomaly", "JudgeResult", "Verdict", "judge"]
