//! Two stacks, each with a shard for each thread, and connections between them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use net::board::Counter;
use net::lan::link::Frame;
use net::tcpip::{ConnectionId, Device, Medium, Options, Secret, Stack};
use os::processor::{self, now_ns};
use proof::dice::Dice;

use super::party::Party;
use super::wire::{MACS, Network, Sender};

/// Frames that a shard receives before its programs have their turn.
const BATCH: usize = 64;

/// How long nothing may move before a run is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a run goes.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub shards: usize,
    pub connections: usize,
    /// Ends of connections move until so many have; none, and each connection stays where its frames enter.
    pub moves: u64,
    /// How long, where nothing moves.
    pub time: Duration,
    pub seed: u64,
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    pub rounds: u64,
    pub seconds: f64,
    pub moves: u64,
    pub resent: u64,
    pub out_of_order: u64,
    pub resets: u64,
}

/// What the threads of a run have in common.
struct Run {
    plan: Plan,
    network: Arc<Network>,
    /// Parties on their way to another shard.
    travelling: Mutex<Vec<Party>>,
    /// Ends that are where they belong at first.
    placed: AtomicU64,
    is_measured: AtomicBool,
    is_over: AtomicBool,
    moves: AtomicU64,
    rounds: AtomicU64,
}

/// Runs it.
pub fn run(plan: Plan) -> Result<Found, String> {
    let network = Arc::new(Network::new(plan.shards));
    let shards = [0, 1].map(|side| {
        let options = Options {
            // Nothing is lost here: what goes again was late because a thread had no processor.
            device: Device {
                medium: Medium { resend_after: Duration::from_secs(10), ..Medium::MEMORY },
                ..Device::LAN
            },
            ..Options::default()
        };
        let address = [10, 1, 0, 1 + side as u8].into();
        let stack = Stack::new(MACS[side], &[address], options, Secret([side as u8; 16]));
        let network = network.clone();
        stack.into_shards(plan.shards, move |shard| network.wake(shard))
    });
    let run = Run {
        plan,
        network,
        travelling: Mutex::default(),
        placed: AtomicU64::new(0),
        is_measured: AtomicBool::new(false),
        is_over: AtomicBool::new(false),
        moves: AtomicU64::new(0),
        rounds: AtomicU64::new(0),
    };
    let barrier = Barrier::new(plan.shards);
    let processors = processor::allowed();
    let [clients, servers] = shards;
    std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .into_iter()
            .zip(servers)
            .enumerate()
            .map(|(shard, (client, server))| {
                let (run, barrier, processors) = (&run, &barrier, &processors);
                scope.spawn(move || {
                    processor::pin(processors[shard % processors.len()]).map_err(|error| {
                        format!("a thread cannot be kept on a processor: {error}")
                    })?;
                    run.network.enter(shard);
                    barrier.wait();
                    let end = Worker::new(run, shard, [client, server]).work();
                    if end.is_err() {
                        run.end();
                    }
                    end
                })
            })
            .collect();
        let mut found = Found::default();
        let (mut seen, mut since) = (0, Instant::now());
        while plan.moves > 0 && !run.is_over.load(Ordering::Acquire) {
            std::thread::park_timeout(Duration::from_millis(100));
            let moves = run.moves.load(Ordering::Relaxed);
            if moves != seen {
                (seen, since) = (moves, Instant::now());
            }
            if since.elapsed() > PATIENCE {
                run.end();
                return Err(format!("after {moves} moves nothing moved for {PATIENCE:?}"));
            }
        }
        if plan.moves == 0 {
            while run.placed.load(Ordering::Acquire) < 2 * plan.connections as u64
                && !run.is_over.load(Ordering::Acquire)
            {
                std::thread::park_timeout(Duration::from_millis(1));
            }
            let start = Instant::now();
            run.is_measured.store(true, Ordering::Release);
            std::thread::sleep(plan.time);
            run.is_measured.store(false, Ordering::Release);
            found.seconds = start.elapsed().as_secs_f64();
            run.end();
        }
        for thread in threads {
            let of_thread = thread.join().map_err(|_| "a thread has panicked")??;
            found.resent += of_thread.resent;
            found.out_of_order += of_thread.out_of_order;
            found.resets += of_thread.resets;
        }
        found.rounds = run.rounds.load(Ordering::Relaxed);
        found.moves = run.moves.load(Ordering::Relaxed);
        Ok(found)
    })
}

impl Run {
    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        (0..self.plan.shards).for_each(|shard| self.network.wake(shard));
    }
}

/// The thread of a shard of both stacks, with the programs whose connections are there.
struct Worker<'a> {
    run: &'a Run,
    shard: usize,
    stacks: [Stack; 2],
    links: [Sender<'a>; 2],
    /// By their tokens.
    parties: Vec<Option<Party>>,
    dice: Dice,
}

impl<'a> Worker<'a> {
    fn new(run: &'a Run, shard: usize, stacks: [Stack; 2]) -> Worker<'a> {
        let links =
            [0, 1].map(|side| Sender { network: &run.network, side, shard, spare: Vec::new() });
        let dice = Dice::new(run.plan.seed ^ shard as u64);
        Worker { run, shard, stacks, links, parties: Vec::new(), dice }
    }

    fn work(mut self) -> Result<Found, String> {
        let at = SocketAddr::new([10, 1, 0, 2].into(), 7);
        if self.shard == 0 {
            self.stacks[1].listen(at, 4096).map_err(|error| error.to_string())?;
            for _ in 0..self.run.plan.connections {
                let id = self.stacks[0].connect(now_ns(), at).map_err(|error| error.to_string())?;
                self.begin(0, id)?;
            }
        }
        while !self.run.is_over.load(Ordering::Acquire) {
            let mut has_worked = false;
            for side in [0, 1] {
                let now = now_ns();
                for _ in 0..BATCH {
                    let Some((offload, bytes)) = self.run.network.take(side, self.shard) else {
                        break;
                    };
                    has_worked = true;
                    let frame = Frame { offload, bytes: &bytes };
                    self.stacks[side].receive(now, 0, frame, &mut self.links[side]);
                    self.links[side].spare.push(bytes);
                }
                while let Some((id, _)) = self.stacks[1].accept(at) {
                    self.begin(1, id)?;
                }
                while let Some(token) = self.stacks[side].take_changed() {
                    has_worked = true;
                    self.serve(token as usize)?;
                }
                has_worked |= self.stacks[side].poll(now, &mut self.links[side]);
                has_worked |= self.welcome(side)?;
            }
            // Where nothing moves the rate is measured, with processors that are never given up.
            if !has_worked && self.run.plan.moves > 0 {
                self.sleep();
            }
        }
        let sum = |counter| self.stacks.iter().map(|stack| stack.counter(counter)).sum();
        Ok(Found {
            resent: sum(Counter::Resent),
            out_of_order: sum(Counter::OutOfOrder),
            resets: sum(Counter::Reset),
            ..Found::default()
        })
    }

    /// Sleeps until something comes, or is due.
    fn sleep(&self) {
        let due = self.stacks.iter().filter_map(Stack::due).min();
        let is_empty = [0, 1].iter().all(|side| self.run.network.is_empty(*side, self.shard));
        if is_empty && !self.run.is_over.load(Ordering::Acquire) {
            match due {
                Some(due) => {
                    let left = due.saturating_sub(now_ns());
                    std::thread::park_timeout(Duration::from_nanos(left));
                }
                None => std::thread::park(),
            }
        }
    }

    /// A party is to work with a connection, here or where the frames of its connection enter.
    fn begin(&mut self, side: usize, id: ConnectionId) -> Result<(), String> {
        let (local, remote) = self.stacks[side].ends(id).ok_or("a connection is not there")?;
        let entry = self.run.network.entry([local.port(), remote.port()]);
        // Both sides number it by the port of the client.
        let client = if side == 0 { local } else { remote };
        let party = Party::new(side, id, client.port().into());
        if entry == self.shard {
            self.run.placed.fetch_add(1, Ordering::Release);
            self.keep(party);
            return Ok(());
        }
        self.send_away(party, entry)
    }

    /// Keeps a party here.
    fn keep(&mut self, party: Party) {
        let token = self.parties.iter().position(Option::is_none).unwrap_or(self.parties.len());
        self.stacks[party.side].watch(party.id, token as u64);
        match self.parties.get_mut(token) {
            Some(place) => *place = Some(party),
            None => self.parties.push(Some(party)),
        }
    }

    /// Has a connection and its party go to another shard.
    fn send_away(&mut self, party: Party, to: usize) -> Result<(), String> {
        let name = (party.number * 2 + party.side) as u64;
        let id = party.id;
        let stack = &mut self.stacks[party.side];
        // Before its connection goes: it must be there when that arrives.
        self.run.travelling.lock().unwrap_or_else(PoisonError::into_inner).push(party);
        match stack.move_to(id, to, name) {
            true => Ok(()),
            false => Err(format!("connection {name} did not move: {:?}", stack.take_end(id))),
        }
    }

    /// Takes in what has come from other shards.
    fn welcome(&mut self, side: usize) -> Result<bool, String> {
        let mut has_come = false;
        while let Some((id, name)) = self.stacks[side].take_arrived() {
            let mut travelling = self.run.travelling.lock().unwrap_or_else(PoisonError::into_inner);
            let is_it = |party: &Party| (party.number * 2 + party.side) as u64 == name;
            let at = travelling.iter().position(is_it).ok_or("nobody has sent this connection")?;
            let mut party = travelling.swap_remove(at);
            drop(travelling);
            party.id = id;
            has_come = true;
            if self.run.plan.moves == 0 {
                self.run.placed.fetch_add(1, Ordering::Release);
            } else if self.run.moves.fetch_add(1, Ordering::Relaxed) + 1 >= self.run.plan.moves {
                self.run.end();
            }
            self.keep(party);
        }
        Ok(has_come)
    }

    fn serve(&mut self, token: usize) -> Result<(), String> {
        let Some(party) = self.parties[token].as_mut() else { return Ok(()) };
        let rounds = party.work(&mut self.stacks[party.side])?;
        if party.side == 0 && self.run.is_measured.load(Ordering::Relaxed)
            || self.run.plan.moves > 0
        {
            self.run.rounds.fetch_add(rounds, Ordering::Relaxed);
        }
        let shards = self.run.plan.shards;
        if self.run.plan.moves > 0 && shards > 1 && rounds > 0 && self.dice.one_in(4) {
            let to = (self.shard + 1 + self.dice.below(shards - 1)) % shards;
            if let Some(party) = self.parties[token].take() {
                self.send_away(party, to)?;
            }
        }
        Ok(())
    }
}
