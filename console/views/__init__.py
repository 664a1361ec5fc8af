"""The pages: one module a subject, each a list VIEWS of console.page.View.

A view is a function from a Reader and a Query to a Page. It knows what to ask and how to say it,
and nothing of HTTP.
"""
