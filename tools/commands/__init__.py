"""The commands of mqadmin, a module per subject; command_table says which module holds which.

A command asks through tools.admin_client and hands over reports. It must not print, and it must
not import another command's module: what two of them need lies in tools itself.
"""
