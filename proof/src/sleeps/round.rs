//! A round: two threads on two processors, a path between them, and a third that watches both.

use std::fmt;
use std::fmt::Write;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use fabric::path::board::{self, ReaderBlock, WriterBlock};
use fabric::path::{Counter, Terms};
use os::processor::{self, now_ns};
use os::sync::Ordering;
use os::words::LentWords;
use proof::dice::{Dice, mix};
use proof::honest;

use super::nap::{Counts, Flaw, Gauge, Habits, Phase, Sleeper};
use super::scene::{Reader, Scene, Writer};

/// How often the sides are examined.
const WATCH: Duration = Duration::from_millis(100);

/// The two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Writer,
    Reader,
}

/// What is done in a round.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// What the sides do.
    pub scene: Scene,
    /// For all that is left to chance.
    pub seed: u64,
    /// Sleeps of both sides together, at least.
    pub sleeps: u64,
    /// Where they run.
    pub processors: [usize; 2],
    /// How long both may sleep until a wake-up counts as lost.
    pub lost_after: Duration,
    /// What a side leaves out.
    pub flaw: Option<(Who, Flaw)>,
}

/// Why a round has failed.
#[derive(Debug)]
pub enum Fault {
    /// Both sides sleep, and no thread will wake them.
    Lost(String),
    /// Something else is wrong.
    Wrong(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Lost(state) => write!(formatter, "a wake-up is lost: both sides sleep\n{state}"),
            Fault::Wrong(what) => writeln!(formatter, "{what}"),
        }
    }
}

/// How many sleeps each side had, the writer first.
pub type Outcome = Result<[Counts; 2], Fault>;

/// Turns of the empty loop in the longest delay of a round. Short delays let announcement and answer meet more
/// often, long ones in other places.
const DAWDLE_TURNS: [u64; 4] = [1, 32, 512, 4096];

/// Polls before an announcement in the most patient side of a round. One takes some nanoseconds: the last is
/// long enough for a partner that the kernel wakes, the first for hardly anything.
const POLLS: [u64; 4] = [4, 64, 1 << 10, 1 << 14];

/// Plays a round.
///
/// # Errors
/// [`Fault`]. The threads of a round in which a wake-up is lost are left asleep.
pub fn play(plan: &Plan) -> Outcome {
    let mut dice = Dice::new(plan.seed);
    let terms = plan.scene.terms(&mut dice);
    let gauges = Arc::new([Gauge::default(), Gauge::default()]);
    let (sides, boards) = start(plan, terms, &mut dice, &gauges);
    let (mut counts, mut ended) = ([Counts::default(); 2], 0);
    let (mut seen, mut since_ns) = (gauges.each_ref().map(Gauge::read), now_ns());
    while ended < 2 {
        match sides.recv_timeout(WATCH) {
            Ok((who, Ok(side))) => {
                counts[who as usize] = side;
                ended += 1;
            }
            Ok((who, Err(what))) => {
                let state = state(plan, &gauges, &boards);
                return Err(Fault::Wrong(format!("the {who:?}: {what}\n{state}")));
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(Fault::Wrong("a side has panicked".into()));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        let now = gauges.each_ref().map(Gauge::read);
        if now != seen {
            (seen, since_ns) = (now, now_ns());
        } else if now.iter().all(|(_, phase)| *phase != Phase::Awake)
            && now_ns() - since_ns >= plan.lost_after.as_nanos() as u64
        {
            return Err(Fault::Lost(state(plan, &gauges, &boards)));
        }
    }
    Ok(counts)
}

type Ended = (Who, Result<Counts, String>);

/// Starts both sides. Each reports how it has ended.
fn start(
    plan: &Plan,
    terms: Terms,
    dice: &mut Dice,
    gauges: &Arc<[Gauge; 2]>,
) -> (mpsc::Receiver<Ended>, honest::Shown) {
    let (pair, boards) = honest::shown_pair(terms);
    let honest::Pair { sender, receiver, back } = pair;
    let (mut one, mut other) = back;
    let (answers, their_answers) = (one.receivers.remove(0), other.senders.remove(0));
    let (say, sides) = mpsc::channel();
    let Plan { scene, sleeps, .. } = *plan;
    let mut habits = |who| Habits {
        dawdle_turns_max: DAWDLE_TURNS[dice.below(DAWDLE_TURNS.len())],
        polls_max: POLLS[dice.below(POLLS.len())],
        flaw: plan.flaw.filter(|(flawed, _)| *flawed == who).map(|(_, flaw)| flaw),
    };
    let (writes, reads) = (habits(Who::Writer), habits(Who::Reader));
    run(plan, Who::Writer, gauges, say.clone(), move |seed, gauges| {
        let sleeper = Sleeper::new(seed, writes, &gauges[0]);
        let other = &gauges[1];
        let mut writer = Writer { sender, answers, sleeper, other, enough: sleeps };
        writer.play(scene).map(|()| writer.sleeper.done())
    });
    run(plan, Who::Reader, gauges, say, move |seed, gauges| {
        let sleeper = Sleeper::new(seed, reads, &gauges[1]);
        let mut reader = Reader { receiver, answers: their_answers, sleeper };
        reader.play(scene).map(|()| reader.sleeper.done())
    });
    (sides, boards)
}

/// Starts one side on its processor.
fn run(
    plan: &Plan,
    who: Who,
    gauges: &Arc<[Gauge; 2]>,
    say: mpsc::Sender<Ended>,
    play: impl FnOnce(u64, &[Gauge; 2]) -> Result<Counts, String> + Send + 'static,
) {
    let (seed, processor) = (mix(plan.seed ^ who as u64), plan.processors[who as usize]);
    let gauges = gauges.clone();
    thread::spawn(move || {
        let pinned = processor::pin(processor).map_err(|error| error.to_string());
        let before = times_blocked();
        let counts = pinned.and_then(|()| play(seed, &gauges));
        let blocked = times_blocked() - before;
        // After a fault the channel is closed.
        let _ = say.send((who, counts.map(|counts| Counts { blocked, ..counts })));
    });
}

/// How often the kernel has put this thread to sleep because it waits for something.
fn times_blocked() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// The state of both halves, for a person who searches for the cause of a fault.
fn state(plan: &Plan, gauges: &[Gauge; 2], boards: &honest::Shown) -> String {
    let mut text = format!("  {plan:?}\n");
    let [writer, reader] = gauges.each_ref().map(Gauge::read);
    let honest::Shown { writer: from, reader: to, .. } = boards;
    writer_state(&mut text, "writer", writer, from);
    reader_state(&mut text, "reader", reader, to);
    if plan.scene == Scene::Answers {
        writer_state(&mut text, "answering writer", reader, &boards.back.0);
        reader_state(&mut text, "reader of answers", writer, &boards.back.1);
    }
    text
}

fn writer_state(
    text: &mut String,
    name: &str,
    (sleeps, phase): (u64, Phase),
    block: &WriterBlock<LentWords>,
) {
    let load = |word| block.control.load(word, Ordering::Acquire);
    let (sleep, halt) = (load(board::SLEEP_WORD), load(board::HALT_WORD));
    let line = format!("{phase:?} after {sleeps} sleeps; sleep word {sleep}, halt word {halt}");
    writeln!(text, "  {name}: {line}; {}", counters(&block.counters)).expect("a string");
}

fn reader_state(
    text: &mut String,
    name: &str,
    (sleeps, phase): (u64, Phase),
    block: &ReaderBlock<LentWords>,
) {
    let load = |word| block.control.load(word, Ordering::Acquire);
    let (sleep, halt) = (load(board::SLEEP_WORD), load(board::HALT_WORD));
    let (quiesce, taken) = (load(board::QUIESCE_WORD), load(board::LENT_TAKEN_WORD));
    let returned = block.returns.load(0, Ordering::Acquire);
    let released = block.released.load(0, Ordering::Acquire);
    let line = format!(
        "{phase:?} after {sleeps} sleeps; sleep word {sleep}, halt word {halt}, quiesce word {quiesce}, {taken} storages taken, {returned} buffers returned, {released} large messages released"
    );
    writeln!(text, "  {name}: {line}; {}", counters(&block.counters)).expect("a string");
}

/// Those that are not zero, in words.
fn counters(words: &LentWords) -> String {
    let shown = Counter::ALL.iter().filter_map(|counter| {
        let value = words.load(*counter as usize, Ordering::Relaxed);
        (value > 0).then(|| format!("{} {value}", counter.name()))
    });
    shown.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(scene: Scene, seed: u64) -> Plan {
        let allowed = processor::allowed();
        let processors = [allowed[0], *allowed.last().expect("this one runs on some")];
        let lost_after = Duration::from_secs(10);
        Plan { scene, seed, sleeps: 2000, processors, lost_after, flaw: None }
    }

    #[test]
    fn no_sleeper_is_missed_whatever_it_sleeps_for() {
        for scene in Scene::ALL {
            for seed in 0..4 {
                let [writer, reader] =
                    play(&plan(scene, seed)).unwrap_or_else(|fault| panic!("{scene:?}: {fault}"));
                assert!(writer.announced + reader.announced >= 2000, "{scene:?}");
                for side in [writer, reader] {
                    assert_eq!(side.announced, side.caught + side.listened, "{scene:?}");
                }
            }
        }
    }

    #[test]
    fn side_that_leaves_out_a_step_of_its_sleep_is_found_out() {
        for (scene, who) in [
            (Scene::Answers, Who::Reader),
            (Scene::Window, Who::Writer),
            (Scene::Announced, Who::Writer),
            (Scene::Lists, Who::Writer),
        ] {
            for flaw in [Flaw::NoLastPoll, Flaw::LateAnnouncement] {
                let lost_after = Duration::from_secs(1);
                let sleeps = u64::MAX;
                let plan = Plan { sleeps, lost_after, flaw: Some((who, flaw)), ..plan(scene, 1) };
                match play(&plan) {
                    Err(Fault::Lost(state)) => assert!(state.contains("sleep word"), "{state}"),
                    other => panic!("{scene:?}, {who:?} with {flaw:?}: {other:?}"),
                }
            }
        }
    }
}
