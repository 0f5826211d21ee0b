"""Planning: rules meet a model."""

from depthmup.planning.application.apply import PlanMismatch
from depthmup.planning.application.groups import MuonGroups
from depthmup.planning.application.joined import JoinedOptimizer
from depthmup.planning.application.optimizer_probe import Probe, family_of
from depthmup.planning.document import PlanDocumentError
from depthmup.planning.initialization.initializers import Drawn, recorded
from depthmup.planning.initialization.own_init import OwnLaw, UnrecognizedInit
from depthmup.planning.options import PlanOptions
from depthmup.planning.plan import Plan, plan
from depthmup.planning.prescription import Multiplier, Prescription
from depthmup.planning.structure.anatomy import Anatomy, anatomy
from depthmup.planning.structure.declared import Branch, DeclaredRole
from depthmup.planning.structure.matching import UnrelatedModels
from depthmup.planning.structure.places import ParameterPlace
from depthmup.planning.structure.roles import NotUnderstood
from depthmup.planning.structure.sites import Site, Where
from depthmup.tracing import Graph, Hook, Residuals, TraceError, find_branches, find_uses, trace

__all__ = [
    "Anatomy",
    "Branch",
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
    "Site",
    "TraceError",
    "UnrecognizedInit",
    "UnrelatedModels",
    "Where",
    "anatomy",
    "family_of",
    "find_branches",
    "find_uses",
    "plan",
    "recorded",
    "trace",
]
