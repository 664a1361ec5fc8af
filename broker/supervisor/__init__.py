"""The parent process: it holds what outlives a child, starts, watches, restarts and stops the
others.

Its main thread does all of it; children use boot_info and process_end. It must not know messages
or files of the store.
"""
