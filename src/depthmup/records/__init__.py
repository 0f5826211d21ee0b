"""Values that runs and measurements leave behind, and their files. Standard library only."""

from depthmup.records.certificate import Certificate, Lack, Refusal
from depthmup.records.check import Check, Exponent, NonFinite, Outcome, Size, deviation
from depthmup.records.codec import encode
from depthmup.records.environment import cores, environment, processor, worker_count
from depthmup.records.finding import UNKNOWN, Estimate, Optimum, Place, Transfer, Verdict
from depthmup.records.gain import Gain, GainVerdict, SizeGain
from depthmup.records.judgement import AcrossGroups, Answer, JointLaw, Judgement
from depthmup.records.measurement import Measurement, Task
from depthmup.records.note import Defect, Note
from depthmup.records.prediction import AxisPrediction, Prediction, SharpnessAt, sentence
from depthmup.records.recipe import Recipe
from depthmup.records.run import NUMERICS, Cell, Data, Network, Optimizer, Record, Run, Status
from depthmup.records.score import Fate, Score
from depthmup.records.study import RUN_AXES, Axis, Curve, Point, Study, Window
from depthmup.records.trial import BASE_SHAPE, Trial
from depthmup.records.tuned import COUNTS, LEARNING_RATE, TUNED, Tuned, tuned, worded

__all__ = [
    "BASE_SHAPE",
    "COUNTS",
    "LEARNING_RATE",
    "NUMERICS",
    "RUN_AXES",
    "TUNED",
    "UNKNOWN",
    "AcrossGroups",
    "Answer",
    "Axis",
    "AxisPrediction",
    "Cell",
    "Certificate",
    "Check",
    "Curve",
    "Data",
    "Defect",
    "Estimate",
    "Exponent",
    "Fate",
    "Gain",
    "GainVerdict",
    "JointLaw",
    "Judgement",
    "Lack",
    "Measurement",
    "Network",
    "NonFinite",
    "Note",
    "Optimizer",
    "Optimum",
    "Outcome",
    "Place",
    "Point",
    "Prediction",
    "Recipe",
    "Record",
    "Refusal",
    "Run",
    "Score",
    "SharpnessAt",
    "Size",
    "SizeGain",
    "Status",
    "Study",
    "Task",
    "Transfer",
    "Trial",
    "Tuned",
    "Verdict",
    "Window",
    "cores",
    "deviation",
    "encode",
    "environment",
    "processor",
    "sentence",
    "tuned",
    "worded",
    "worker_count",
]
