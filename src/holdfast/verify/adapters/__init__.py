"""Any store, behind one small surface."""
