"""nco-guard for LangChain: guarded models, verified models, agent middleware, runnables and an audit log.

    from langchain_nco_guard import ChatNCOGuard, GuardedPipeline, NCOGuardMiddleware, guard_runnable

Where a model runs on this machine it is guarded while it writes (`ChatNCOGuard`, `GuardedPipeline`). Any other model is
verified before anybody sees what it wrote (`NCOGuardMiddleware`, `VerifiedChatModel`, `guard_runnable`).
"""

from langchain_nco_guard.callbacks import NCOGuardAuditHandler
from langchain_nco_guard.chat_models import ChatNCOGuard
from langchain_nco_guard.llms import GuardedPipeline
from langchain_nco_guard.middleware import NCOGuardMiddleware
from langchain_nco_guard.runnables import guard_runnable, report_runnable
from langchain_nco_guard.verified import VerifiedChatModel

__all__ = [
    "ChatNCOGuard",
    "GuardedPipeline",
    "NCOGuardAuditHandler",
    "NCOGuardMiddleware",
    "VerifiedChatModel",
    "guard_runnable",
    "report_runnable",
]

__version__ = "0.2.0.dev0"
