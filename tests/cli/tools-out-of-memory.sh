# SPDX-License-Identifier: Apache-2.0
# Memory that is refused, anywhere: exit 1 and one line, never a signal. A preloaded library refuses it.
. "$EXPECT"
command -v c++ >/dev/null || exit 77
cat >refuse.cpp <<'END'
// REFUSE_FROM=N: the N-th allocation and all later ones, REFUSE_SIZE=B: only those of B bytes. COUNT=1: how many there were.
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
extern "C" void* __libc_malloc(std::size_t);
extern "C" void* __libc_memalign(std::size_t, std::size_t);
static std::atomic<long> calls{0};
static long number(const char* name) { const char* text = std::getenv(name); return text == nullptr ? 0 : std::atol(text); }
static bool refused(std::size_t bytes) {
  static const long from = number("REFUSE_FROM"), size = number("REFUSE_SIZE");
  const long call = ++calls;
  if (from == 0 || call < from || (size != 0 && bytes != static_cast<std::size_t>(size))) return false;
  errno = ENOMEM;
  return true;
}
extern "C" void* malloc(std::size_t bytes) { return refused(bytes) ? nullptr : __libc_malloc(bytes); }
extern "C" void* aligned_alloc(std::size_t to, std::size_t bytes) { return refused(bytes) ? nullptr : __libc_memalign(to, bytes); }
__attribute__((destructor)) static void tell() {
  char text[32];
  if (number("COUNT") != 0) std::fwrite(text, 1, static_cast<std::size_t>(std::snprintf(text, sizeof text, "%ld\n", calls.load())), stderr);
}
END
c++ -std=c++20 -O1 -shared -fPIC refuse.cpp -o refuse.so 2>err || exit 77
counted() { env COUNT=1 LD_PRELOAD="$PWD/refuse.so" "$@" 2>&1 >/dev/null | tail -n 1; }
first=$(counted tl-generate --version)
[[ $first =~ ^[0-9]+$ ]] && [ "$first" -gt 100 ] || exit 77 # sanitizers allocate themselves

echo '1 2 3 4 5 6 7' >in
tl-pool-register --pool pool -m "$MODELS/m.tinyloop" in >key
run=(tl-generate -m "$MODELS/m.tinyloop" --threads 1 --seed 1 -n 3 --pool pool --stats=stats in)
last=$(counted "${run[@]}")
refusals=0
told() { # VARIABLE=VALUE...
  local status=0
  env "$@" LD_PRELOAD="$PWD/refuse.so" "${run[@]}" >out 2>err || status=$?
  [ "$status" -ne 0 ] || return 0
  refusals=$((refusals + 1))
  [ "$status" -eq 1 ] && [ "$(wc -l <err)" -eq 1 ] || fail "$*: exit status $status: $(cat err)"
  holds err 'tl-generate: '
}
# Of one size, which finds those that are seldom, such as the state of a hash; then all from one on.
for bytes in $(seq 512 8 768); do told REFUSE_FROM="$first" REFUSE_SIZE="$bytes"; done
[ "$refusals" -gt 0 ] || fail 'nothing was refused'
for from in $(seq "$((first + 100))" "$(((last - first) / 60 + 1))" "$last"); do told REFUSE_FROM="$from"; done
