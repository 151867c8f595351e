"""Masks: the definition (`bruteforce`), its fast form (`tables`), and rules joined lazily (`joint`)."""

from nco_guard.masking.joint import ENDED, LIMITED, VIOLATED, JointTables

__all__ = ["ENDED", "LIMITED", "VIOLATED", "JointTables"]
