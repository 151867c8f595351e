"""Shapes: what a text is to look like, and what of that a policy leaves."""

from nco_guard.shapes.shape import SHAPE_RULE, Shape, ShapeSource, as_shape

__all__ = ["SHAPE_RULE", "Shape", "ShapeSource", "as_shape"]
