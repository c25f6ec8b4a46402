/* SPDX-License-Identifier: Apache-2.0
 * links: br_schedule
 * The exact set of tasks that a lost worker costs: each shape of query, staged and eager, loss of each worker after each answer, with retired
 * outputs kept or evicted. What must run again is computed here from the definition (by fixed points over what is alive, what runs and
 * who reads whom); the scheduler must run that, each once, and nothing else. */
#include "schedule_help.h"

#define R_STAGES 6
#define R_TASKS 6
#define R_WORKERS 3

typedef struct shape {
  const char *name;
  const br_sched_stage *stages;
  size_t n;
  uint32_t read_at_once; /* bit t: the caller reads result task t as soon as it is there; the others at the end */
} shape;

typedef struct fate {
  bool ran, running, bound, made, alive, read;
  uint32_t at;
  uint16_t attempt;
} fate;

typedef struct recovery {
  const shape *s;
  br_sched_mode mode;
  int policy; /* who is answered next: 0: lowest stage, 1: oldest, 2: highest stage */
  bool evict;
  uint32_t slots;
  harness *h;
  fate f[R_STAGES][R_TASKS];
  bool retired[R_STAGES];
  size_t seen; /* words of the log that were looked at */
  bool failed, done, failure_due;
} recovery;

/* ---- who reads whom */
static bool reads(const recovery *r, size_t c, uint32_t reader, size_t p, uint32_t task) {
  const br_sched_stage *st = &r->s->stages[c];
  for (size_t k = 0; k < st->n_inputs; k++) {
    if (st->inputs[k].stage != p) continue;
    if (st->inputs[k].kind != BR_READ_FORWARD || st->inputs[k].first + task == reader) return true;
  }
  return false;
}

#define EACH(r, c, t)                    \
  for (size_t c = 0; c < (r)->s->n; c++) \
    for (uint32_t t = 0; t < (r)->s->stages[c].tasks; t++)

/* ---- following what the scheduler says */
static void take_run(recovery *r, const br_action *a) {
  size_t c = a->attempt.stage;
  fate *me = &r->f[c][a->attempt.task];
  assert_false(me->running);
  assert_false(me->alive);
  me->ran = me->running = true;
  me->bound = false;
  me->at = a->worker;
  me->attempt = a->attempt.attempt;
  for (size_t p = 0; p < c; p++)
    for (uint32_t t = 0; t < r->s->stages[p].tasks; t++) {
      if (!reads(r, c, a->attempt.task, p, t)) continue;
      assert_true(r->f[p][t].alive || (r->mode == BR_SCHED_EAGER && r->f[p][t].running));
      me->bound |= !r->f[p][t].alive;
    }
}

static void follow(recovery *r) {
  for (size_t i = 0; i < r->h->a.count; i++) {
    const br_action *a = &r->h->a.items[i];
    fate *me = &r->f[a->attempt.stage][a->attempt.task];
    switch (a->kind) {
      case BR_ACT_RUN: take_run(r, a); break;
      case BR_ACT_CANCEL: me->running = false; break;
      case BR_ACT_DROP_OUTPUT:
        if (me->attempt == a->attempt.attempt) me->alive = false;
        break;
      case BR_ACT_RETIRE_STAGE:
        assert_false(r->retired[a->stage]);
        r->retired[a->stage] = true;
        break;
      case BR_ACT_TABLE: r->retired[a->stage] = false; break;
      case BR_ACT_DROP_STAGE:
        for (uint32_t t = 0; t < R_TASKS; t++) r->f[a->stage][t].alive = false;
        break;
      case BR_ACT_QUERY_DONE: r->done = true; break;
      case BR_ACT_QUERY_FAILED: r->failed = true; break;
      default: break;
    }
  }
}

static void read_result(recovery *r, uint32_t task) {
  size_t last = r->s->n - 1;
  r->f[last][task].read = true;
  h_read(r->h, 7, (uint32_t)last, task);
  follow(r);
}

/* Answer one attempt; false: nothing runs. What was told to stop answers first. */
static bool answer_one(recovery *r) {
  harness *h = r->h;
  size_t best = h->n_runs;
  for (size_t i = 0; i < h->n_runs; i++) {
    if (h->cancelled[i]) {
      h_answer(h, i, BR_EV_TASK_FAILED, NULL);
      follow(r);
      i = (size_t)-1;
      best = h->n_runs;
      continue;
    }
    const br_attempt_id *a = &h->runs[i].attempt, *b = best < h->n_runs ? &h->runs[best].attempt : NULL;
    bool better = b == NULL || (r->policy == 0 ? a->stage < b->stage : r->policy == 2 && a->stage > b->stage);
    if (better) best = i;
  }
  if (best == h->n_runs) return false;
  br_attempt_id id = h->runs[best].attempt;
  fate *me = &r->f[id.stage][id.task];
  me->running = false;
  me->made = me->alive = true;
  h_answer(h, best, BR_EV_TASK_DONE, NULL);
  follow(r);
  if (id.stage + 1 == r->s->n && !r->done && !me->read && (r->s->read_at_once >> id.task & 1)) read_result(r, id.task);
  return true;
}

/* ---- what must run again, from the definition */
static bool needed(const recovery *r, bool need[R_STAGES][R_TASKS], size_t p, uint32_t t) {
  const br_sched_stage *st = &r->s->stages[p];
  if (r->f[p][t].alive) return false;
  if (st->result && !r->f[p][t].read) return true;
  for (size_t c = p + 1; c < r->s->n; c++)
    for (uint32_t k = 0; k < r->s->stages[c].tasks; k++)
      if (need[c][k] && reads(r, c, k, p, t)) return true;
  return false;
}

static void find_needs(const recovery *r, bool need[R_STAGES][R_TASKS]) {
  for (size_t c = r->s->n; c > 0; c--)
    for (uint32_t t = 0; t < r->s->stages[c - 1].tasks; t++) need[c - 1][t] = needed(r, need, c - 1, t);
}

/* What read this output mixes two versions of it. */
static bool void_readers(recovery *r, size_t p, uint32_t t) {
  bool changed = false;
  EACH(r, c, k) {
    fate *f = &r->f[c][k];
    if (!reads(r, c, k, p, t) || !f->ran) continue;
    bool was_made = f->made;
    r->failure_due |= was_made && f->read;
    changed |= f->running || f->made;
    f->running = f->made = f->alive = false; /* EAGER: what it wrote may have been read, however it ended */
    if (was_made || r->mode == BR_SCHED_EAGER) changed |= void_readers(r, c, k);
  }
  return changed;
}

/* EAGER: who reads what is neither there nor under way starts again. */
static bool unbind(recovery *r) {
  bool changed = false;
  EACH(r, c, k) {
    if (!r->f[c][k].running || !r->f[c][k].bound) continue;
    for (size_t p = 0; p < c; p++)
      for (uint32_t t = 0; t < r->s->stages[p].tasks; t++)
        if (r->f[c][k].running && reads(r, c, k, p, t) && !r->f[p][t].alive && !r->f[p][t].running) {
          r->f[c][k].running = false;
          changed = true;
        }
  }
  return changed;
}

/* least: readers that go on on the other workers end before what they need is made again. */
static void expect(const recovery *now, uint32_t lost, bool least, char *words, bool *fails) {
  static recovery r; /* a copy to play with */
  bool need[R_STAGES][R_TASKS];
  r = *now;
  EACH(&r, c, t) {
    fate *f = &r.f[c][t];
    if (r.evict && r.retired[c]) f->alive = false;
    if (f->at != lost) continue;
    f->running = false;
    f->alive &= r.s->stages[c].outlives;
  }
  EACH(&r, c, t) if (least && r.f[c][t].running && !r.f[c][t].bound) r.f[c][t].alive = true;
  for (bool changed = true; changed;) {
    changed = unbind(&r);
    find_needs(&r, need);
    EACH(&r, p, t) {
      fate *f = &r.f[p][t];
      if (r.s->stages[p].indeterminate && need[p][t] && !f->running && f->ran) {
        r.failure_due |= f->made && f->read;
        changed |= void_readers(&r, p, t);
      }
    }
  }
  words[0] = 0;
  *fails = r.failure_due;
  EACH(&r, c, t)
  if (need[c][t] && !r.f[c][t].running && r.f[c][t].ran)
    snprintf(words + strlen(words), 16, "%s%u.%u", *words ? " " : "", (unsigned)c, (unsigned)t);
}

/* ---- one run: so many answers, then the loss, then to the end */
static void lose(recovery *r, uint32_t lost) {
  for (uint32_t c = 0; c < r->s->n && r->evict; c++) {
    for (uint32_t t = 0; t < r->s->stages[c].tasks && r->retired[c]; t++) {
      fate *f = &r->f[c][t];
      br_attempt_id id = {.query = 7, .stage = c, .task = t, .attempt = f->attempt};
      if (!f->alive) continue;
      f->alive = false;
      h_step(r->h, (br_event){.kind = BR_EV_OUTPUTS_LOST,
                              .worker = f->at,
                              .incarnation = r->h->inc[f->at],
                              .attempts = &id,
                              .n_attempts = 1});
      assert_int_equal(h_count(r->h, BR_ACT_RUN), 0); /* nobody needs it */
    }
  }
  EACH(r, c, t) {
    fate *f = &r->f[c][t];
    if (f->at != lost) continue;
    f->running = false;
    f->alive &= r->s->stages[c].outlives;
  }
  h_clear(r->h);
  h_lose(r->h, lost);
  follow(r);
}

static bool has_word(const char *words, const char *word) {
  for (const char *at = words; (at = strstr(at, word)) != NULL; at++)
    if ((at == words || at[-1] == ' ') && (at[strlen(word)] == ' ' || at[strlen(word)] == 0)) return true;
  return false;
}

static bool all_in(const char *some, const char *words) {
  char copy[512];
  snprintf(copy, sizeof copy, "%s", some);
  for (char *save, *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
    if (!has_word(words, w)) return false;
  return true;
}

/* The tasks of the log that had run before, sorted. */
static const char *ran_again(const recovery *r, const recovery *before) {
  static char out[2048];
  char copy[sizeof r->h->log];
  out[0] = 0;
  snprintf(copy, sizeof copy, "%s", h_ran(r->h));
  for (char *save, *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
    unsigned c, t;
    assert_int_equal(sscanf(w, "%u.%u", &c, &t), 2);
    if (before->f[c][t].ran) snprintf(out + strlen(out), 16, "%s%s", *out ? " " : "", w);
  }
  return out;
}

static size_t n_losses, n_reruns, n_failures;

/* False: the query is over before that many answers. */
static bool play(const shape *s, br_sched_mode mode, int policy, bool evict, uint32_t slots, uint32_t answers,
                 uint32_t lost) {
  static recovery r, before;
  char expected[512], least[512];
  bool fails, maybe;
  const br_sched_options o = {.straggler_percent = UINT32_MAX};
  memset(&r, 0, sizeof r);
  r.s = s;
  r.mode = mode;
  r.policy = policy;
  r.evict = evict;
  r.slots = slots;
  r.h = h_new(&o);
  for (uint32_t w = 1; w <= R_WORKERS; w++) h_join(r.h, w, slots);
  h_step(r.h, (br_event){.kind = BR_EV_QUERY, .query = 7, .stages = s->stages, .n_stages = s->n, .mode = mode});
  follow(&r);
  for (uint32_t i = 0; i < answers; i++)
    if (!answer_one(&r) || r.done) break;
  bool over = r.done || (answers > 0 && r.h->n_runs == 0);
  if (!r.done) {
    before = r;
    expect(&r, lost, true, least, &maybe);
    expect(&r, lost, false, expected, &fails);
    lose(&r, lost);
    r.policy = 0; /* what is made again is there before its readers end */
    while (!r.failed && answer_one(&r)) {
    }
    for (uint32_t t = 0; t < s->stages[s->n - 1].tasks && !r.failed && !r.done; t++)
      if (!r.f[s->n - 1][t].read) read_result(&r, t);
    const char *ran = ran_again(&r, &before);
    /* With a slot for everybody what is made again comes before its readers end: exactly that. Otherwise some of these may be quicker. */
    bool right = slots > 1 ? strcmp(ran, expected) == 0 : all_in(ran, expected) && all_in(least, ran);
    if (r.failed != fails || (!fails && !right))
      fail_msg("%s, %s, policy %d, %s, %u slots: worker %u lost after %u answers: ran again \"%s\", not \"%s\"%s",
               s->name, mode ? "eager" : "staged", policy, evict ? "evicted" : "kept", slots, lost, answers, ran,
               expected,
               fails      ? "; it must fail"
               : r.failed ? "; it failed"
                          : "");
    assert_true(r.done || r.failed);
    n_losses++;
    n_reruns += *expected != 0;
    n_failures += r.failed;
  }
  h_free(r.h);
  return !over;
}

static void play_all(const shape *s) {
  n_losses = n_reruns = n_failures = 0;
  for (int mode = 0; mode < 2; mode++)
    for (int policy = 0; policy < 3; policy++)
      for (int evict = 0; evict < 2; evict++)
        for (uint32_t slots = 1; slots <= 4; slots += 3)
          for (uint32_t lost = 1; lost <= R_WORKERS; lost++)
            for (uint32_t k = 0; play(s, (br_sched_mode)mode, policy, evict, slots, k, lost); k++) assert_true(k < 100);
  assert_true(n_losses > 100 && n_reruns > 20);
}

#define COMPLETE(st) \
  { .stage = (st), .kind = BR_READ_ALL, .complete = true }

#define SHAPE(test, at_once, ...)                                                                                    \
  static void test(void **state) {                                                                                   \
    (void)state;                                                                                                     \
    const br_sched_stage stages[] = {__VA_ARGS__};                                                                   \
    const shape s = {.name = #test, .stages = stages, .n = sizeof stages / sizeof *stages, .read_at_once = at_once}; \
    play_all(&s);                                                                                                    \
  }

SHAPE(test_chain, 0, {.tasks = 4}, {.tasks = 3, INPUTS(ALL(0))}, {.tasks = 1, INPUTS(ALL(1)), .result = true})
SHAPE(test_long_chain, 0, {.tasks = 2}, {.tasks = 3, INPUTS(ALL(0))}, {.tasks = 2, INPUTS(ALL(1))},
      {.tasks = 2, INPUTS(ALL(2))}, {.tasks = 1, INPUTS(ALL(3)), .result = true})
SHAPE(test_diamond, 0, {.tasks = 2}, {.tasks = 2, INPUTS(ALL(0))}, {.tasks = 3, INPUTS(ALL(0))},
      {.tasks = 1, INPUTS(ALL(1), ALL(2)), .result = true})
SHAPE(test_fan_in, 0, {.tasks = 3}, {.tasks = 1}, {.tasks = 2}, {.tasks = 2, INPUTS(ALL(0), ALL(1), ALL(2))},
      {.tasks = 1, INPUTS(ALL(3)), .result = true})
SHAPE(test_cte_read_twice, 0, {.tasks = 3}, {.tasks = 2, INPUTS(ALL(0))}, {.tasks = 2, INPUTS(ALL(0), ALL(1))},
      {.tasks = 1, INPUTS(ALL(2)), .result = true})
SHAPE(test_forward_chain, 0, {.tasks = 4}, {.tasks = 4, INPUTS(FWD(0))}, {.tasks = 4, INPUTS(FWD(1))},
      {.tasks = 1, INPUTS(ALL(2)), .result = true})
SHAPE(test_union_of_forwards, 0, {.tasks = 2}, {.tasks = 3}, {.tasks = 5, INPUTS(FWD(0), FWD_AT(1, 2))},
      {.tasks = 2, INPUTS(ALL(2)), .result = true})
SHAPE(test_broadcast, 0, {.tasks = 1}, {.tasks = 3}, {.tasks = 3, INPUTS(CAST(0), FWD(1))},
      {.tasks = 2, INPUTS(CAST(0), ALL(2)), .result = true})
SHAPE(test_results_half_read, 5, {.tasks = 3}, {.tasks = 4, INPUTS(ALL(0)), .result = true})
SHAPE(test_results_read_at_once, 15, {.tasks = 3}, {.tasks = 2, INPUTS(ALL(0))},
      {.tasks = 4, INPUTS(ALL(1)), .result = true})
SHAPE(test_complete_inputs, 0, {.tasks = 2}, {.tasks = 2}, {.tasks = 3, INPUTS(COMPLETE(0), ALL(1))},
      {.tasks = 1, INPUTS(ALL(2)), .result = true})
SHAPE(test_outputs_that_outlive_workers, 0, {.tasks = 3, .outlives = true},
      {.tasks = 3, INPUTS(ALL(0)), .outlives = true}, {.tasks = 2, INPUTS(ALL(1))},
      {.tasks = 1, INPUTS(ALL(2)), .result = true})
SHAPE(test_indeterminate_leaf, 0, {.tasks = 3, .indeterminate = true}, {.tasks = 2, INPUTS(ALL(0))},
      {.tasks = 2, INPUTS(ALL(1))}, {.tasks = 1, INPUTS(ALL(2)), .result = true})
SHAPE(test_indeterminate_forward, 0, {.tasks = 2}, {.tasks = 4, INPUTS(ALL(0)), .indeterminate = true},
      {.tasks = 4, INPUTS(FWD(1))}, {.tasks = 2, INPUTS(ALL(2)), .result = true})
SHAPE(test_indeterminate_read_twice, 0, {.tasks = 2, .indeterminate = true}, {.tasks = 2, INPUTS(ALL(0))},
      {.tasks = 2, INPUTS(CAST(0), ALL(1))}, {.tasks = 1, INPUTS(ALL(2)), .result = true})

static void test_indeterminate_after_rows_were_handed_out(void **state) {
  (void)state;
  const br_sched_stage stages[] = {{.tasks = 2, .indeterminate = true}, {.tasks = 4, INPUTS(ALL(0)), .result = true}};
  const shape s = {.name = "handed out", .stages = stages, .n = 2, .read_at_once = 5};
  play_all(&s);
  assert_true(n_failures > 10); /* it says so; it does not mix */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_chain),
      cmocka_unit_test(test_long_chain),
      cmocka_unit_test(test_diamond),
      cmocka_unit_test(test_fan_in),
      cmocka_unit_test(test_cte_read_twice),
      cmocka_unit_test(test_forward_chain),
      cmocka_unit_test(test_union_of_forwards),
      cmocka_unit_test(test_broadcast),
      cmocka_unit_test(test_results_half_read),
      cmocka_unit_test(test_results_read_at_once),
      cmocka_unit_test(test_complete_inputs),
      cmocka_unit_test(test_outputs_that_outlive_workers),
      cmocka_unit_test(test_indeterminate_leaf),
      cmocka_unit_test(test_indeterminate_forward),
      cmocka_unit_test(test_indeterminate_read_twice),
      cmocka_unit_test(test_indeterminate_after_rows_were_handed_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
