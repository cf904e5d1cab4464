//! Processors: pinning, clocks, and processor time used.

use std::io;
use std::num::NonZeroU64;
use std::time::Duration;

use rustix::process::Pid;
use rustix::thread::{self, CpuSet};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// The processors this thread may run on, in ascending order. None if the kernel does not say: it has more than 1024.
pub fn allowed() -> Vec<usize> {
    let Ok(set) = thread::sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect()
}

/// Keeps the calling thread on one processor.
///
/// # Errors
/// As from the kernel: there is no such processor, or this process may not use it.
pub fn pin(processor: usize) -> io::Result<()> {
    keep_on(&[processor])
}

/// Keeps the calling thread on some processors.
///
/// # Errors
/// As [`pin`].
pub fn keep_on(processors: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for processor in processors {
        if *processor >= CpuSet::MAX_CPU {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        set.set(*processor);
    }
    Ok(thread::sched_setaffinity(None::<Pid>, &set)?)
}

/// Nanoseconds of the clock that all processes of the machine share and that is never set.
#[inline]
pub fn now_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Processor time that the calling thread has used, in nanoseconds, from the scheduler's own clock.
pub fn thread_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

/// Processor time that all threads of this process have used, in nanoseconds.
pub fn process_ns() -> u64 {
    nanoseconds(ClockId::ProcessCPUTime)
}

/// Has the calling thread's timers end sleeps when they are due: without this Linux may end them up to 50 us later, to end several at once. It lasts until the
/// thread ends. Nothing changes where the kernel refuses.
pub fn lower_timer_slack() {
    let _ = thread::set_current_timer_slack(NonZeroU64::new(1_000));
}

/// Gives the processor to others until that time, on the clock of [`now_ns`]. A signal may end the rest sooner.
pub fn rest_until(ns: u64) {
    let until =
        Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
    let _ = thread::clock_nanosleep_absolute(ClockId::Monotonic, &until);
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// How a thread's processor time divides. At each timer tick Linux samples whether the thread is in user or
/// in kernel mode, and scales that to the true total: short runs give no information.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// In the program.
    pub user: Duration,
    /// In the kernel on the program's behalf.
    pub system: Duration,
}

/// The division of the calling thread's processor time so far.
pub fn thread_split() -> Split {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills in the structure, for which there is room.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    assert_eq!(result, 0, "getrusage of one's own thread cannot fail");
    // SAFETY: filled in above, and zeros would be valid too.
    let usage = unsafe { usage.assume_init() };
    let duration =
        |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    Split { user: duration(usage.ru_utime), system: duration(usage.ru_stime) }
}

/// The number by which the kernel knows the calling thread.
pub fn thread_number() -> u32 {
    thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// What a thread of this process has used so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadTime {
    /// Its number.
    pub number: u32,
    /// What it is called.
    pub name: String,
    /// All of its processor time. Of a thread that is running, what it had at the last timer tick.
    pub ns: u64,
    /// How that divides, in units of [`TICK_NS`].
    pub split: Split,
}

/// The threads of this process, at most `threads_max`.
///
/// # Errors
/// If `/proc` cannot be read. A thread that ends meanwhile is left out.
pub fn threads(threads_max: usize) -> io::Result<Vec<ThreadTime>> {
    let mut threads = Vec::new();
    for entry in std::fs::read_dir("/proc/self/task")?.take(threads_max) {
        let directory = entry?.path();
        let read = |file: &str| std::fs::read_to_string(directory.join(file));
        if let (Ok(stat), Ok(times)) = (read("stat"), read("schedstat")) {
            threads.extend(parse_thread(&stat, &times));
        }
    }
    Ok(threads)
}

/// The fields are those of proc_pid_stat(5): the name may have blanks and parentheses in it.
fn parse_thread(stat: &str, times: &str) -> Option<ThreadTime> {
    let (number, rest) = stat.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let ticks = |field: usize| rest.split(' ').nth(field)?.parse::<u64>().ok();
    let (user, system) = (ticks(11)?, ticks(12)?);
    let time = |ticks: u64| Duration::from_nanos(ticks * TICK_NS);
    Some(ThreadTime {
        number: number.parse().ok()?,
        name: name.to_owned(),
        ns: times.split_ascii_whitespace().next()?.parse().ok()?,
        split: Split { user: time(user), system: time(system) },
    })
}

/// Time that a whole processor has spent since the machine started, in units of [`TICK_NS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTicks {
    /// In programs.
    pub user: u64,
    /// In the kernel on behalf of programs and of itself.
    pub system: u64,
    /// In interrupts, hard and soft.
    pub interrupts: u64,
    /// Doing nothing.
    pub idle: u64,
    /// Waiting for the real processor, in a virtual machine.
    pub stolen: u64,
}

/// The unit of [`ProcessorTicks`]: a hundredth of a second, fixed in the kernel's interface.
pub const TICK_NS: u64 = 10_000_000;

/// Times of one processor.
///
/// # Errors
/// If `/proc/stat` cannot be read or has no such processor.
pub fn processor_ticks(processor: usize) -> io::Result<ProcessorTicks> {
    let text = std::fs::read_to_string("/proc/stat")?;
    parse_ticks(&text, processor).ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn parse_ticks(text: &str, processor: usize) -> Option<ProcessorTicks> {
    let name = format!("cpu{processor} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name))?;
    let mut fields = line.split_ascii_whitespace().map(|field| field.parse::<u64>().ok());
    let mut next = || fields.next().flatten();
    let (user, nice, system, idle, waiting) = (next()?, next()?, next()?, next()?, next()?);
    let (hard, soft) = (next()?, next()?);
    let stolen = next().unwrap_or(0);
    Some(ProcessorTicks {
        user: user + nice,
        system,
        interrupts: hard + soft,
        idle: idle + waiting,
        stolen,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_can_be_pinned_to_a_processor_it_is_allowed_and_no_other() {
        let allowed = allowed();
        std::thread::spawn(move || {
            pin(allowed[0]).unwrap();
            assert_eq!(super::allowed(), [allowed[0]]);
            assert!(pin(CpuSet::MAX_CPU - 1).is_err());
            assert!(pin(usize::MAX).is_err());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn work_takes_processor_time() {
        let before = thread_ns();
        let start = now_ns();
        while now_ns() - start < 5_000_000 {}
        let after = thread_ns();
        assert!(after > before);
        assert!(process_ns() >= after, "this thread is one of the process's");
        let Split { user, system } = thread_split();
        assert!(user + system > Duration::ZERO);
    }

    #[test]
    fn every_thread_is_listed_with_its_time() {
        let (done, is_done) = std::sync::mpsc::channel::<()>();
        let (number, numbers) = std::sync::mpsc::channel();
        let other = std::thread::Builder::new().name("a (strange) 1".into());
        let other = other.spawn(move || {
            number.send(thread_number()).unwrap();
            is_done.recv().unwrap_err();
        });
        let number = numbers.recv().unwrap();
        let threads = threads(1000).unwrap();
        let found = threads.iter().find(|thread| thread.number == number).unwrap();
        assert_eq!(found.name, "a (strange) 1");
        assert!(threads.iter().any(|thread| thread.number == thread_number()));
        drop(done);
        other.unwrap().join().unwrap();
        let stat = "7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 11 12 13";
        let time = parse_thread(stat, "5000 1 2\n").unwrap();
        assert_eq!((time.number, time.name.as_str(), time.ns), (7, "a b) c", 5000));
        assert_eq!(time.split.user, Duration::from_millis(110));
        assert_eq!(time.split.system, Duration::from_millis(120));
        assert_eq!(parse_thread("7 (a) S 1", "5000"), None);
    }

    #[test]
    fn line_of_a_processor_is_taken_apart() {
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu1 1 2 3 4 5 6 7 8 0 0\ncpu10 0 0 0 0 0 0 0\n";
        let ticks = ProcessorTicks { user: 3, system: 3, interrupts: 13, idle: 9, stolen: 8 };
        assert_eq!(parse_ticks(text, 1), Some(ticks));
        assert_eq!(parse_ticks(text, 10), Some(ProcessorTicks::default()));
        assert_eq!(parse_ticks(text, 0), None);
        assert_eq!(parse_ticks("cpu0 1 2 x", 0), None);
    }
}
