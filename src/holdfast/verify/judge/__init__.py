"""The judge: a history in, a verdict out. No clock, file, network or engine."""

from holdfast.verify.judge.decide import judge
from holdfast.verify.judge.verdict import ANOMALIES, PROMISES, Anomaly, JudgeResult, Verdict

__all__ = ["ANOMALIES", "PROMISES", "Anomaly", "JudgeResult", "Verdict", "judge"]
