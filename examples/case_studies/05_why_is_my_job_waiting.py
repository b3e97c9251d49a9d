# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Why is my job waiting?
#
# Your queue as a table: who, how many GPUs, how many minutes. Put your own in its place (`squeue`, a CSV, a sheet). The
# cluster is one site of 64 GPUs, the policy shortest first; both can be yours too. Then the four questions: why, until
# when, what would start it now, and what if. Every answer is played before it is given, and followed here to see.

# %%
import csv
import io

from telling import say

from attribution_sched import System

JOBS = """job,tenant,gpus,minutes
pretrain-a,vision,8,600
pretrain-b,vision,8,540
pretrain-c,vision,8,480
sweep-1,speech,8,300
sweep-2,speech,8,300
sweep-3,speech,8,240
finetune-1,text,8,200
finetune-2,text,4,180
mine,robots,8,60
"""

jobs = list(csv.DictReader(io.StringIO(JOBS)))
system = System("shared", policy="sjf", queue="empty")
for job in jobs[:-1]:
    steps = 60 * int(job["minutes"])
    system.submit(f"opaque-{job['gpus']}", id=job["job"], tenant=job["tenant"], steps=steps)
system.run(len(jobs) - 1)
mine = jobs[-1]
system.submit(f"opaque-{mine['gpus']}", id="mine", tenant=mine["tenant"], steps=60 * int(mine["minutes"]))

# %% [markdown]
# ## Why, and until when
#
# Jobs of this site are opaque, as in the log that it is fitted to: the minutes of the table are what really comes, and
# nobody who decides or foresees knows them. `when` draws lengths from what jobs of such a size took, of which some end
# in seconds; so its interval is wide.

# %%
why = system.why("mine")
say(why.say())
say(why.say("zh"))
say(system.when("mine", futures=9, hours=6.0).say())

# %% [markdown]
# ## What if the job that holds the room were not there?

# %%
(without,) = system.what_if(without=why.blockers[0], futures=4, hours=6.0)
say(without.say())

# %% [markdown]
# ## Followed: the same work on fewer GPUs

# %%
devices, asked_at_s = why.change["devices"], system.now_s
system.withdraw("mine")
system.submit(f"opaque-{devices}", id="mine-smaller", steps=60 * int(mine["minutes"]) * int(mine["gpus"]) // devices)
started = system.schedule_next_task()
say(f"Asked for {devices} GPUs: {started.task.id} started {started.cluster_time_s - asked_at_s:.0f} s later.")
assert why.cause.value == "no_room", "there is too little room, not too little will"
assert why.blockers == ("finetune-2",), "the smallest job that holds enough is named"
assert why.ahead == (), "nobody else waits"
assert without.effects[0].delta < 0.0, "without that job the wait is shorter"
assert "4" in why.advice, "the sentence says what the record says"
assert devices == 4, "half the devices are free"
assert started.task.id == "mine-smaller", "followed, the advice starts it"
assert started.cluster_time_s == asked_at_s, "at once"
say("All claims hold.")
