"""Our store for each engine. A backend turns commands into an engine's own steps.

Backends never import one another, and only a backend imports its driver.
"""
