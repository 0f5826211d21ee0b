"""Planning: rules meet a model."""

from depthmup.planning.anatomy import Anatomy, anatomy
from depthmup.planning.declared import Branch, DeclaredRole
from depthmup.planning.document import PlanDocumentError
from depthmup.planning.factors import factors_of
from depthmup.planning.groups import MuonGroups
from depthmup.planning.initialize import PlanMismatch
from depthmup.planning.initializers import Drawn, recorded
from depthmup.planning.joined import JoinedOptimizer
from depthmup.planning.matching import UnrelatedModels
from depthmup.planning.options import PlanOptions
from depthmup.planning.own_init import OwnLaw, UnrecognizedInit
from depthmup.planning.parameters import ParameterPlace
from depthmup.planning.plan import Plan, plan
from depthmup.planning.prescribe import Prescription
from depthmup.planning.probe import Probe, family_of
from depthmup.planning.proof import Contradicted
from depthmup.planning.roles import NotUnderstood
from depthmup.planning.sites import Multiplier, Where
from depthmup.tracing import Graph, Hook, Residuals, TraceError, find_branches, find_uses, trace

__all__ = [
    "Anatomy",
    "Branch",
    "Contradicted",
    "DeclaredRole",
    "Drawn",
    "Graph",
    "Hook",
    "JoinedOptimizer",
    "Multiplier",
    "MuonGroups",
    "NotUnderstood",
    "OwnLaw",
    "ParameterPlace",
    "Plan",
    "PlanDocumentError",
    "PlanMismatch",
    "PlanOptions",
    "Prescription",
    "Probe",
    "Residuals",
    "TraceError",
    "UnrecognizedInit",
    "UnrelatedModels",
    "Where",
    "anatomy",
    "factors_of",
    "family_of",
    "find_branches",
    "find_uses",
    "plan",
    "recorded",
    "trace",
]
