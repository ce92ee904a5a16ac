from g2d.verifier.extraction import last_boxed
from g2d.verifier.pool import Limits, VerifierError
from g2d.verifier.verifier import Verdict, Verification, Verifier, shared_verifier, verify_batch

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
