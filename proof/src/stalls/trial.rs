//! One trial: a host, a client and a server with a stack each, and who watches them.

use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Builder};
use std::time::Duration;

use os::processor::now_ns;
use siga::host::{Embedded, Observer, System};
use siga::lan::{Address, Lan, LanOptions};
use siga::tcpip::{Congestion, Counter, Drive, Stack, StackOptions, TcpListener, TcpStream};
use siga::{Guest, Wait};

use super::threads;

/// The exchange between a client and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Manner {
    /// 64 bytes there and 64 bytes back, over one connection
    Exchange,
    /// 64 bytes after 64 bytes one way, over one connection
    Stream,
    /// a connection for each 64 bytes there and 8000 bytes back
    Connect,
}

/// How a trial goes.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub manner: Manner,
    pub wait: Wait,
    pub drive: Drive,
    /// Set if each side has one processor, as in the lab.
    pub is_pinned: bool,
    /// How long.
    pub time: Duration,
    /// How long the client sleeps in the middle.
    pub nap: Duration,
    /// How long all threads may be asleep without progress before the scene is printed.
    pub asleep_max: Duration,
    /// How long nothing may come before the trial counts as standing still for ever.
    pub patience: Duration,
}

/// The result of a trial.
#[derive(Debug, Default)]
pub struct Found {
    /// Messages that were received, or connections that were answered.
    pub items: u64,
    /// The longest time without progress, in nanoseconds.
    pub still_ns: u64,
    /// The longest time without progress in which all threads of the trial slept, in nanoseconds.
    pub asleep_ns: u64,
    /// How long all threads together ran at the most while nothing came, in nanoseconds.
    pub ran_ns: u64,
    /// Segments that were sent again.
    pub resent: u64,
    /// Descriptions of sleeps that were too long.
    pub scenes: Vec<String>,
}

/// The progress of a trial.
#[derive(Debug, Default)]
struct Progress {
    items: AtomicU64,
    is_over: AtomicBool,
    /// The longest time without, in nanoseconds.
    still_ns: AtomicU64,
}

/// Notes the progress: the side that receives has it.
struct Note<'a> {
    progress: &'a Progress,
    last_ns: u64,
}

impl<'a> Note<'a> {
    fn begin(progress: &'a Progress) -> Note<'a> {
        Note { progress, last_ns: now_ns() }
    }

    /// Something has come.
    fn item(&mut self) {
        let now = now_ns();
        self.progress.still_ns.fetch_max(now - self.last_ns, Ordering::Relaxed);
        self.last_ns = now;
        self.progress.items.fetch_add(1, Ordering::Relaxed);
    }
}

const ITEM_BYTES: usize = 64;
const ANSWER_BYTES: usize = 8000;
const PORT: u16 = 7;

/// How long the sides wait for each other at the end.
const FINISH_MAX: Duration = Duration::from_secs(10);

/// Runs a trial at a host that listens at `socket`.
///
/// # Errors
/// What does not work, or stands still for ever: then its threads are still there.
pub fn run(plan: &Plan, socket: &Path) -> Result<Found, String> {
    let mut system = System::open();
    system.socket = Some(socket.to_owned());
    let host = Embedded::start(system).map_err(|error| format!("no host: {error}"))?;
    let progress: &'static Progress = Box::leak(Box::default());
    let plan = *plan;
    let member = |name: &'static str| {
        let options =
            LanOptions { address: Address::Chosen, wait: plan.wait, ..Default::default() };
        let guest = Guest::attach_embedded(&host, name).map_err(|error| error.to_string())?;
        Lan::join(guest, "hs0", &options).map_err(|error| error.to_string())
    };
    let (served, asking) = (member("SERVER")?, member("CLIENT")?);
    let address = served.addresses()[0];
    let spawn = |name: &str, side: Box<dyn FnOnce() -> io::Result<u64> + Send>| {
        Builder::new().name(name.to_owned()).spawn(side).map_err(|error| error.to_string())
    };
    let sides = [
        spawn("server", Box::new(move || serve(&plan, served, progress)))?,
        spawn("client", Box::new(move || ask(&plan, asking, address, progress)))?,
    ];
    let observer = Observer::attach(socket).map_err(|error| error.to_string())?;
    let is_over = || sides.iter().all(thread::JoinHandle::is_finished);
    let mut found = Found::default();
    watch(&plan, progress, &observer, is_over, &mut found)?;
    for side in sides {
        let resent = side.join().map_err(|_| "a side has panicked")?;
        found.resent += resent.map_err(|error| format!("{:?}: {error}", plan.manner))?;
    }
    found.items = progress.items.load(Ordering::Relaxed);
    found.still_ns = progress.still_ns.load(Ordering::Relaxed);
    Ok(found)
}

/// How often the watcher looks.
const LOOK: Duration = Duration::from_millis(1);

/// Looks at the progress until both sides have ended. Nothing that it does touches the stacks: a look at one could end a sleep
/// that nothing else would end.
fn watch(
    plan: &Plan,
    progress: &Progress,
    observer: &Observer,
    is_over: impl Fn() -> bool,
    found: &mut Found,
) -> Result<(), String> {
    // Since when nothing has come, and since when all have slept in each look.
    let (mut items, mut since_ns, mut asleep_since_ns) = (0, now_ns(), None);
    // How long the threads had run when the last thing came.
    let mut ran_before_ns = 0;
    let mut is_told = false;
    while !is_over() {
        thread::sleep(LOOK);
        let threads = threads::look().map_err(|error| error.to_string())?;
        let (now, now_items) = (now_ns(), progress.items.load(Ordering::Relaxed));
        if now_items != items {
            (items, since_ns, is_told) = (now_items, now, false);
            ran_before_ns = threads.ran_ns;
        }
        found.ran_ns = found.ran_ns.max(threads.ran_ns.saturating_sub(ran_before_ns));
        asleep_since_ns =
            (threads.are_asleep && since_ns != now).then(|| asleep_since_ns.unwrap_or(now));
        let asleep_ns = asleep_since_ns.map_or(0, |since| now - since);
        let still_ns = now - since_ns;
        found.asleep_ns = found.asleep_ns.max(asleep_ns);
        let is_last = still_ns >= plan.patience.as_nanos() as u64;
        if (asleep_ns >= plan.asleep_max.as_nanos() as u64 && !is_told) || is_last {
            is_told = true;
            let is_over = progress.is_over.load(Ordering::Relaxed);
            let scene = format!(
                "{plan:?}: no progress for {} ms, all asleep for {} ms, {items} items so far, last one: {is_over}\n{}",
                still_ns / 1_000_000,
                asleep_ns / 1_000_000,
                scene(observer)
            );
            if is_last {
                return Err(scene);
            }
            found.scenes.push(scene);
        }
    }
    Ok(())
}

/// How all stand: threads, stacks and paths.
fn scene(observer: &Observer) -> String {
    let mut scene = threads::scene();
    let mut add = |json: serde_json::Result<String>| {
        scene.push_str(&json.unwrap_or_default());
        scene.push('\n');
    };
    match observer.query() {
        Err(error) => scene.push_str(&format!("  the host does not answer: {error}\n")),
        Ok(report) => {
            add(serde_json::to_string(&report));
            for path in &report.paths {
                let Ok(mut audit) = observer.audit(path.path) else { continue };
                for queue in &mut audit.queues {
                    // 256 rows that follow from the counts.
                    queue.buffers.clear();
                }
                add(serde_json::to_string(&audit));
            }
        }
    }
    scene
}

fn stack(plan: &Plan, lan: Lan) -> io::Result<Stack> {
    let buffer_bytes = if plan.manner == Manner::Connect { 64 << 10 } else { 1 << 20 };
    let options = StackOptions {
        congestion: Congestion::None,
        receive_bytes: buffer_bytes,
        send_bytes: buffer_bytes,
        drive: plan.drive,
        ..StackOptions::default()
    };
    Stack::new(lan, &options)
}

fn resent(stack: &Stack) -> u64 {
    stack.counter(Counter::Resent)
}

/// Keeps this thread on one processor, if the plan says so.
fn pin(plan: &Plan, side: usize) {
    let processors = os::processor::allowed();
    if plan.is_pinned {
        os::processor::pin(processors[side % processors.len()]).expect("it is allowed");
    }
}

fn serve(plan: &Plan, lan: Lan, progress: &Progress) -> io::Result<u64> {
    pin(plan, 0);
    let stack = stack(plan, lan)?;
    let listener = TcpListener::bind(&stack, ("0.0.0.0", PORT))?;
    let mut item = [0; ITEM_BYTES];
    if plan.manner == Manner::Connect {
        let answer = [7; ANSWER_BYTES];
        loop {
            let mut stream = listener.accept()?.0;
            stream.read_exact(&mut item)?;
            stream.write_all(&answer)?;
            if item[0] == 0 {
                break;
            }
        }
    } else {
        let mut stream = listener.accept()?.0;
        stream.set_nodelay(true)?;
        let is_one_way = plan.manner == Manner::Stream;
        let mut note = if is_one_way { Some(Note::begin(progress)) } else { None };
        loop {
            stream.read_exact(&mut item)?;
            match &mut note {
                Some(note) => note.item(),
                None => stream.write_all(&item)?,
            }
            if item[0] == 0 {
                break;
            }
        }
    }
    stack.finish(FINISH_MAX)?;
    Ok(resent(&stack))
}

fn ask(plan: &Plan, lan: Lan, address: IpAddr, progress: &Progress) -> io::Result<u64> {
    pin(plan, 1);
    let stack = stack(plan, lan)?;
    let end_ns = now_ns() + plan.time.as_nanos() as u64;
    let mut nap = plan.nap;
    // The last item says that it is the last.
    let mut next = || {
        if now_ns() + plan.time.as_nanos() as u64 / 2 >= end_ns {
            thread::sleep(std::mem::take(&mut nap));
        }
        let is_last = now_ns() >= end_ns;
        progress.is_over.store(is_last, Ordering::Relaxed);
        (is_last, [u8::from(!is_last); ITEM_BYTES])
    };
    if plan.manner == Manner::Connect {
        let mut note = Note::begin(progress);
        let mut answer = Vec::new();
        loop {
            let (is_last, item) = next();
            let mut stream = connect(&stack, address)?;
            stream.write_all(&item)?;
            answer.clear();
            stream.read_to_end(&mut answer)?;
            if answer.len() != ANSWER_BYTES {
                return Err(io::Error::other(format!("an answer of {} bytes", answer.len())));
            }
            note.item();
            if is_last {
                break;
            }
        }
    } else {
        let mut note = match plan.manner {
            Manner::Stream => None,
            _ => Some(Note::begin(progress)),
        };
        let mut stream = connect(&stack, address)?;
        stream.set_nodelay(true)?;
        let mut back = [0; ITEM_BYTES];
        loop {
            let (is_last, item) = next();
            stream.write_all(&item)?;
            if let Some(note) = &mut note {
                stream.read_exact(&mut back)?;
                note.item();
            }
            if is_last {
                break;
            }
        }
    }
    stack.finish(FINISH_MAX)?;
    Ok(resent(&stack))
}

/// Connects; the server may not listen yet.
fn connect(stack: &Stack, address: IpAddr) -> io::Result<TcpStream> {
    loop {
        match TcpStream::connect(stack, (address, PORT)) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => thread::yield_now(),
            connected => return connected,
        }
    }
}
