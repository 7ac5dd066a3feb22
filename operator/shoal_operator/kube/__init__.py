"""Everything that talks to kube-apiserver or to a router's admin port; no decision is made here."""
