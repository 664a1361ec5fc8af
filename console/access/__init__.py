"""Who may see and change what: accounts, sessions, and the gate before every page and action.

In process `console`. `access.Access` is all that console/app.py needs to know; the other modules
are its parts, each of them without knowledge of the others where that is possible. Must not know
any page.
"""
