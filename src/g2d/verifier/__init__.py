from g2d.verifier.extraction import last_boxed
from g2d.verifier.limits import Limits
from g2d.verifier.pool import VerifierError
from g2d.verifier.verdict import Verdict, Verification
from g2d.verifier.verifier import Verifier, shared_verifier, verify_batch

__all__ = [
    "Limits",
    "Verdict",
    "Verification",
    "Verifier",
    "VerifierError",
    "last_boxed",
    "shared_verifier",
    "verify_batch",
]
