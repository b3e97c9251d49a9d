"""A live page over a journal, a JSON API and metrics: read-only, beside a running writer.

    follow ─▶ view (one record of plain JSON) ─▶ page, API, metrics
    questions ─▶ why, why-not

What follows the journal and what answers questions are processes of their own, so that a page is served while a
cluster is being lived through. The process that serves imports neither NumPy nor the simulation.
"""
