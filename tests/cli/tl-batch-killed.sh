# SPDX-License-Identifier: Apache-2.0
# 50 kills at random moments over one job of 500 lines, each followed by --continue: the final file is that of a run that
# nobody disturbed. TL_TEST_SEED=N gives other jobs and moments.
. "$EXPECT"
python3 - "$MODELS/m.tinyloop" "${TL_TEST_SEED-1}" <<'END'
import json, os, random, signal, subprocess, sys, time
model, seed = sys.argv[1:]
seed = random.randrange(1 << 32) if seed == 'random' else int(seed)
rng = random.Random(seed)

with open('jobs', 'w') as jobs:
    for i in range(500):
        if i % 50 == 49:
            print('{"tokens":[64]}', file=jobs)
            continue
        job = {'id': i, 'tokens': [rng.randrange(64) for _ in range(rng.randrange(1, 24))],
               'max_tokens': rng.randrange(1, 40), 'priority': rng.randrange(3)}
        if i % 3 == 0: job['seed'] = i
        print(json.dumps(job), file=jobs)
open('nothing', 'w').close()

def start(output, *more, jobs='jobs'):
    return subprocess.Popen(['tl-batch', '-m', model, '--jsonl', '--seed', '7', '--ignore-eos', '--threads', '1',
                             '-o', output, *more, jobs])

def timed(*arguments, **named):
    begin = time.monotonic()
    status = start(*arguments, **named).wait()
    return status, time.monotonic() - begin

def check(holds, what):
    if not holds:
        print(f'TL_TEST_SEED={seed}: {what}', file=sys.stderr)
        sys.exit(1)

status, whole = timed('wanted')
check(status == 3, f'the undisturbed run ends with {status}')
# How long a run lives: around the time that it takes until something is done.
life = timed('none', jobs='nothing')[1] + whole / 50
kills = rounds = grown = 0
while kills < 50:
    rounds += 1
    check(rounds < 50, f'only {kills} kills')
    for name in 'got', 'got.journal':
        if os.path.exists(name): os.remove(name)
    size = 0
    while kills < 50 and not os.path.exists('got'):
        process = start('got', '--continue')
        time.sleep(rng.uniform(0.5, 1.5) * life)
        process.send_signal(rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
        if process.wait() >= 0:  # it was faster
            life *= 0.5
            break
        kills += 1
        before, size = size, os.path.getsize('got.journal') if os.path.exists('got.journal') else 0
        grown += size > before
        life *= 1.15 if size == before else 0.9 if size < before + 2000 else 0.7
    if not os.path.exists('got') or os.path.exists('got.journal'):
        status = start('got', '--continue').wait()
        check(status == 3, f'the last run ends with {status}')
    check(open('got').read() == open('wanted').read(), f'the output differs after {kills} kills')
    check(not os.path.exists('got.journal'), 'the journal is still there')
check(grown >= 5, f'only {grown} of the killed runs had done anything')
END
