//! `siga-proof torture`: guests stream checked data in a mesh, and are killed; another exhausts. Then the same with members of
//! a LAN and ports, with TCPIP machines and their clients, with guests at adapters, and with guests that write to volumes.

pub mod adapter;
pub mod birth;
mod blackbox;
mod dialogue;
pub mod disk;
pub mod guest;
pub mod hoarder;
pub mod host;
pub mod lan;
mod ledger;
pub mod machine;
mod schedule;
mod supervisor;
mod wire;

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use proof::dice;
use proof::hoard::Exhaustion;

use self::schedule::{Act, Kind, Wanted};
use self::supervisor::{Fault, Supervisor, Terms};
use self::wire::GUESTS_MAX;

/// Guests stream checked data in a mesh; guests and the host are killed at random and started again
///
/// Every survivor must be notified of a death in time. No message may be corrupt, duplicated or lost without
/// a report. No process may hold more resources afterwards than before. A guest that uses up a resource must
/// get errors that name the resource, and all others must go on. The seed repeats the schedule.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How many processes to kill, at least
    #[arg(long, default_value_t = 100)]
    kills: usize,
    /// How many members, ports and hosts of a LAN to kill, at least
    #[arg(long, default_value_t = 100)]
    lan_kills: usize,
    /// How many control units, hosts and guests that write to volumes to kill, at least
    #[arg(long, default_value_t = 100)]
    disk_kills: usize,
    /// How many members of a LAN with connections of TCP between them, and hosts, to kill, at least
    #[arg(long, default_value_t = 50)]
    tcp_kills: usize,
    /// How many TCPIP machines, clients of them, members of their LAN and hosts to kill, at least
    #[arg(long, default_value_t = 100)]
    machine_kills: usize,
    /// How many processes of adapters, guests at them and hosts to kill, at least
    #[arg(long, default_value_t = 100)]
    adapter_kills: usize,
    /// Kill adapters of this wiring only [default: half of the kills with each that this machine allows]
    #[arg(long, value_enum)]
    wiring: Option<adapter::Wiring>,
    /// The command `siga`, for ports [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    siga: Option<PathBuf>,
    /// How often a guest uses a resource up, frees it, and has to work again
    #[arg(long, default_value_t = 0)]
    exhaustions: usize,
    /// Use up only this resource [default: all that this machine allows, in turn]
    #[arg(long = "exhaustion", value_name = "KIND")]
    kinds: Vec<Exhaustion>,
    /// Repeat the schedule of this seed [default: any]
    #[arg(long)]
    seed: Option<u64>,
    /// Number of guests
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(2..=GUESTS_MAX as u64))]
    guests: u64,
    /// How long after the end of a process its survivors may be notified, in milliseconds
    #[arg(long, default_value_t = 100)]
    severed_ms: u64,
    /// How long a step may take before it counts as hanging, in seconds
    #[arg(long, default_value_t = 30)]
    patience_s: u64,
    /// Print the schedule, and kill no process
    #[arg(long)]
    show: bool,
}

/// Runs the torture.
pub fn run(arguments: &Arguments) -> ExitCode {
    let seed = arguments.seed.unwrap_or_else(dice::any_seed);
    let guests = arguments.guests as usize;
    let (kills, exhaustions) = (arguments.kills, arguments.exhaustions);
    let kinds = match arguments.kinds.is_empty() {
        true => Exhaustion::possible(),
        false => arguments.kinds.clone(),
    };
    let schedule = schedule::draw(seed, &Wanted { kills, exhaustions, kinds, guests });
    println!("seed {seed}, {guests} guests");
    if arguments.show {
        schedule.iter().for_each(|act| println!("{act}"));
        if arguments.lan_kills > 0 {
            println!("in a LAN:");
            let acts = lan::draw(seed, arguments.lan_kills, true);
            acts.iter().for_each(|act| println!("{act}"));
        }
        if arguments.disk_kills > 0 {
            println!("of disks:");
            let rounds = disk::draw(seed, arguments.disk_kills);
            rounds.iter().for_each(|round| println!("{round}"));
        }
        if arguments.tcp_kills > 0 {
            println!("in a LAN, with connections:");
            let acts = lan::draw(seed, arguments.tcp_kills, false);
            acts.iter().for_each(|act| println!("{act}"));
        }
        if arguments.machine_kills > 0 {
            println!("of machines:");
            let acts = machine::draw(seed, arguments.machine_kills);
            acts.iter().for_each(|act| println!("{act}"));
        }
        if arguments.adapter_kills > 0 {
            println!("of adapters:");
            let acts = adapter::draw(seed, arguments.adapter_kills);
            acts.iter().for_each(|act| println!("{act}"));
        }
        return ExitCode::SUCCESS;
    }
    let is_mesh_well = kills + exhaustions == 0 || torture_mesh(arguments, &schedule);
    let is_lan_well = arguments.lan_kills == 0 || torture_lan(arguments, seed);
    let is_tcp_well = arguments.tcp_kills == 0 || torture_connections(arguments, seed);
    let is_machine_well = arguments.machine_kills == 0 || torture_machines(arguments, seed);
    let is_adapter_well = arguments.adapter_kills == 0 || torture_adapters(arguments, seed);
    let is_disk_well = arguments.disk_kills == 0 || torture_disk(arguments, seed);
    let are_well =
        [is_mesh_well, is_lan_well, is_tcp_well, is_machine_well, is_adapter_well, is_disk_well];
    let is_well = are_well.into_iter().all(|is_well| is_well);
    println!("{}", if is_well { "all is well".into() } else { format!("NOT WELL, seed {seed}") });
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Kills guests that have paths to each other, and their hosts. Whether all is well.
fn torture_mesh(arguments: &Arguments, schedule: &[Act]) -> bool {
    let terms = Terms {
        guests: arguments.guests as usize,
        hoarder: arguments.exhaustions > 0,
        severed_within: Duration::from_millis(arguments.severed_ms),
        patience: Duration::from_secs(arguments.patience_s),
    };
    let mut supervisor = match Supervisor::new(terms) {
        Ok(supervisor) => supervisor,
        Err(error) => {
            eprintln!("siga-proof: cannot start: {error}");
            return false;
        }
    };
    let start = Instant::now();
    let fault = kill_all(&mut supervisor, schedule).err();
    if let Some(Fault(what)) = &fault {
        eprintln!("\n{what}\n{}", supervisor.scene());
    }
    let (text, good) = verdict(&supervisor, fault.as_ref(), start.elapsed());
    print!("{text}");
    good
}

/// Kills members of a LAN, programs behind ports, ports and hosts. Whether all is well.
fn torture_lan(arguments: &Arguments, seed: u64) -> bool {
    let patience = Duration::from_secs(arguments.patience_s);
    let siga = arguments.siga.clone().or_else(siga_beside);
    let (start, mut done) = (Instant::now(), 0);
    let mut scene = match lan::Scene::new(lan::Manner::Frames, siga, patience) {
        Ok(scene) => scene,
        Err(error) => {
            eprintln!("siga-proof: cannot start: {error}");
            return false;
        }
    };
    let torture = |scene: &mut lan::Scene| {
        if let Some(why) = scene.try_ports()? {
            eprintln!("siga-proof: SKIPPED: torture of ports: {why}");
        }
        scene.start_all()?;
        for act in lan::draw(seed, arguments.lan_kills, scene.has_ports()) {
            scene.perform(act).map_err(|error| format!("act {done}, {act}: {error}"))?;
            done += 1;
        }
        scene.end()
    };
    let torture: Result<(), String> = { torture }(&mut scene);
    let tally = scene.tally();
    let seconds = start.elapsed().as_secs_f64();
    println!("kills in a LAN {} in {seconds:.1} s", tally.kills.values().sum::<u64>());
    for kind in lan::Kind::ALL {
        println!("  {:5} {}", tally.kills.get(&kind).unwrap_or(&0), kind.words());
    }
    println!(
        "parcels received and verified {}; {} lost between living members, each counted",
        tally.parcels, tally.lost
    );
    println!(
        "inspections of counters and leaks {}, wrong {}",
        tally.inspections,
        tally.wrong.len()
    );
    tally.wrong.iter().for_each(|wrong| println!("wrong: {wrong}"));
    if let Err(fault) = &torture {
        println!("fault: {fault}");
    }
    torture.is_ok() && tally.wrong.is_empty()
}

/// Kills members of a LAN that have connections of TCP with each other, and hosts. Whether all is well.
fn torture_connections(arguments: &Arguments, seed: u64) -> bool {
    let patience = Duration::from_secs(arguments.patience_s);
    let (start, mut done) = (Instant::now(), 0);
    let mut scene = match lan::Scene::new(lan::Manner::Connections, None, patience) {
        Ok(scene) => scene,
        Err(error) => {
            eprintln!("siga-proof: cannot start: {error}");
            return false;
        }
    };
    let torture = |scene: &mut lan::Scene| {
        scene.start_all()?;
        for act in lan::draw(seed, arguments.tcp_kills, false) {
            scene.perform(act).map_err(|error| format!("act {done}, {act}: {error}"))?;
            done += 1;
        }
        scene.end()
    };
    let torture: Result<(), String> = { torture }(&mut scene);
    let tally = scene.tally();
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "kills of members with connections, and of hosts, {} in {seconds:.1} s",
        tally.kills.values().sum::<u64>()
    );
    println!(
        "conversations that were whole, byte for byte, {}; connections that ended with an error {}",
        tally.conversations, tally.ended
    );
    println!("inspections for leaks {}, wrong {}", tally.inspections, tally.wrong.len());
    tally.wrong.iter().for_each(|wrong| println!("wrong: {wrong}"));
    if let Err(fault) = &torture {
        println!("fault: {fault}");
    }
    torture.is_ok() && tally.wrong.is_empty()
}

/// Kills TCPIP machines, their clients, a member of their LAN, and hosts. Whether all is well.
fn torture_machines(arguments: &Arguments, seed: u64) -> bool {
    let (start, mut done) = (Instant::now(), 0);
    let mut scene = match machine::Scene::new(Duration::from_secs(arguments.patience_s)) {
        Ok(scene) => scene,
        Err(error) => {
            eprintln!("siga-proof: cannot start: {error}");
            return false;
        }
    };
    let torture = |scene: &mut machine::Scene| {
        scene.start_all()?;
        for act in machine::draw(seed, arguments.machine_kills) {
            scene.perform(act).map_err(|error| format!("act {done}, {act}: {error}"))?;
            done += 1;
        }
        scene.end()
    };
    let torture: Result<(), String> = { torture }(&mut scene);
    let tally = scene.tally();
    let seconds = start.elapsed().as_secs_f64();
    println!("kills of machines {} in {seconds:.1} s", tally.kills.values().sum::<u64>());
    for kind in machine::Kind::ALL {
        println!("  {:5} {}", tally.kills.get(&kind).unwrap_or(&0), kind.words());
    }
    println!(
        "conversations that were whole, byte for byte, {}; connections that ended with an error {}; frames of streams that last {}",
        tally.conversations(),
        tally.ended(),
        tally.frames()
    );
    let (introduced, moved) = tally.introduced();
    println!(
        "introductions of clients {introduced}, halves of connections that have moved {moved}, moves of drivers {}",
        tally.driver_moves()
    );
    for class in machine::Class::ALL {
        let told = tally.told.get(&class).copied().unwrap_or_default();
        let ms = |ns: u64| ns as f64 / 1e6;
        println!(
            "  {:5} {}: at most {:.1} ms after the end of the process, {:.1} ms after its kill; {} after more than 1 s",
            told.count,
            class.words(),
            ms(told.worst_after_end_ns),
            ms(told.worst_after_kill_ns),
            told.long
        );
    }
    println!("inspections for leaks {}, wrong {}", tally.inspections, tally.wrong.len());
    tally.wrong.iter().for_each(|wrong| println!("wrong: {wrong}"));
    if let Err(fault) = &torture {
        println!("fault: {fault}");
    }
    torture.is_ok() && tally.wrong.is_empty()
}

/// Kills processes of adapters, guests with devices at them, and hosts, with each wiring. Whether all is well.
fn torture_adapters(arguments: &Arguments, seed: u64) -> bool {
    let kills = arguments.adapter_kills;
    let cable = match arguments.wiring {
        Some(adapter::Wiring::Memory) => None,
        _ => match adapter::Cable::make() {
            Ok(cable) => Some(cable),
            Err(why) => {
                eprintln!("siga-proof: SKIPPED: torture of adapters with a cable: {why}");
                if arguments.wiring.is_some() {
                    return true;
                }
                None
            }
        },
    };
    let with_both = arguments.wiring.is_none() && cable.is_some();
    let kills = if with_both { kills.div_ceil(2) } else { kills };
    let mut is_well = true;
    if cable.is_none() || with_both {
        is_well &= torture_wiring(arguments, seed, kills, None);
    }
    if cable.is_some() {
        is_well &= torture_wiring(arguments, seed, kills, cable);
    }
    is_well
}

fn torture_wiring(
    arguments: &Arguments,
    seed: u64,
    kills: usize,
    cable: Option<adapter::Cable>,
) -> bool {
    let wiring = if cable.is_some() { adapter::Wiring::Cable } else { adapter::Wiring::Memory };
    let (start, mut done) = (Instant::now(), 0);
    let patience = Duration::from_secs(arguments.patience_s);
    let mut scene = match adapter::Scene::new(cable, patience) {
        Ok(scene) => scene,
        Err(error) => {
            eprintln!("siga-proof: cannot start: {error}");
            return false;
        }
    };
    let torture = |scene: &mut adapter::Scene| {
        scene.start_all()?;
        for act in adapter::draw(seed, kills) {
            scene.perform(act).map_err(|error| format!("act {done}, {act}: {error}"))?;
            done += 1;
        }
        scene.end()
    };
    let torture: Result<(), String> = { torture }(&mut scene);
    let tally = scene.tally();
    let seconds = start.elapsed().as_secs_f64();
    let killed = tally.kills.values().sum::<u64>();
    println!("kills of adapters with a wire {wiring} {killed} in {seconds:.1} s");
    for kind in adapter::Kind::ALL {
        println!("  {:5} {}", tally.kills.get(&kind).unwrap_or(&0), kind.words());
    }
    println!(
        "conversations that were whole, byte for byte, {}; connections that ended with an error {}; frames of streams that last {}, streams whose other end was killed {}",
        tally.conversations(),
        tally.ended(),
        tally.frames(),
        tally.ended_streams
    );
    if wiring == adapter::Wiring::Cable {
        let wires = tally.wires.iter().map(|(wire, lives)| format!("{lives} by {wire:?}"));
        let wires = wires.collect::<Vec<_>>().join(", ").to_lowercase();
        println!(
            "lives of the adapter {wires}; the interface was as it was found after {} ends",
            tally.found_as_before
        );
    }
    println!("inspections for leaks {}, wrong {}", tally.inspections, tally.wrong.len());
    tally.wrong.iter().for_each(|wrong| println!("wrong: {wrong}"));
    if let Err(fault) = &torture {
        println!("fault: {fault}");
    }
    torture.is_ok() && tally.wrong.is_empty()
}

/// Kills control units, hosts and guests that write to volumes. Whether all is well.
fn torture_disk(arguments: &Arguments, seed: u64) -> bool {
    let start = Instant::now();
    let mut scene = match disk::Scene::new(Duration::from_secs(arguments.patience_s)) {
        Ok(scene) => scene,
        Err(error) => {
            eprintln!("siga-proof: cannot start: {error}");
            return false;
        }
    };
    let mut told = Instant::now();
    let kills = arguments.disk_kills;
    let torture = scene.torture(&disk::draw(seed, kills), |done| {
        if told.elapsed() >= Duration::from_secs(1) {
            told = Instant::now();
            eprintln!("{done} of {kills} kills of disks");
        }
    });
    let tally = scene.tally();
    let seconds = start.elapsed().as_secs_f64();
    println!("kills of disks {} in {seconds:.1} s", scene.kills());
    println!("  {:5} of the control unit", tally.server_kills);
    println!("  {:5} of the host", tally.host_kills);
    println!("  {:5} of a guest that writes", tally.writer_kills);
    println!("writes acknowledged {}; blocks held against them {}", scene.writes(), tally.blocks);
    println!("inspections for leaks {}", tally.inspections);
    let (volumes, directly) = (disk::VOLUMES.len(), tally.direct_volumes.unwrap_or(0));
    println!("volumes written directly {directly}, by calls {}", volumes - directly);
    if directly < volumes {
        eprintln!(
            "siga-proof: SKIPPED: torture of direct writes: {} of {volumes} volumes were written through the page cache: \
             TMPDIR must name a directory on a disk whose file system has direct writes of 512 bytes, \
             and the kernel must allow io_uring",
            volumes - directly
        );
    }
    tally.wrong.iter().for_each(|wrong| println!("wrong: {wrong}"));
    if let Err(fault) = &torture {
        println!("fault: {fault}");
    }
    torture.is_ok() && tally.wrong.is_empty()
}

/// The command `siga` beside this program.
fn siga_beside() -> Option<PathBuf> {
    let siga = std::env::current_exe().ok()?.with_file_name("siga");
    siga.exists().then_some(siga)
}

/// Performs the schedule, and prints its progress.
fn kill_all(supervisor: &mut Supervisor, schedule: &[Act]) -> Result<(), Fault> {
    supervisor.start_all()?;
    let is_deed = |act: &&Act| matches!(act, Act::Kill(..) | Act::Exhaust(..));
    let deeds = |acts: &[Act]| acts.iter().filter(is_deed).count();
    let (all, mut done) = (deeds(schedule), 0);
    let mut told = Instant::now();
    // From one settled mesh to the next, so that kills that belong together stay together.
    for acts in schedule.split_inclusive(|act| *act == Act::Settle) {
        supervisor.perform(acts)?;
        done += deeds(acts);
        if told.elapsed() >= Duration::from_secs(1) {
            told = Instant::now();
            let found = supervisor.found();
            eprintln!(
                "{done} of {all} kills and exhaustions, {} messages verified",
                found.messages
            );
        }
    }
    Ok(())
}

/// What has been found, in words, and whether it is good.
fn verdict(supervisor: &Supervisor, fault: Option<&Fault>, time: Duration) -> (String, bool) {
    let (tally, found) = (supervisor.tally(), supervisor.found());
    let mut text = String::new();
    let mut line = |line: String| writeln!(text, "{line}").expect("a string takes any text");
    line(format!("kills {} in {:.1} s", tally.kills.values().sum::<u64>(), time.as_secs_f64()));
    for kind in Kind::ALL {
        line(format!("  {:5} {}", tally.kills.get(&kind).unwrap_or(&0), kind.words()));
    }
    if !tally.exhaustions.is_empty() {
        let exhaustions = tally.exhaustions.values().sum::<u64>();
        line(format!("exhaustions {exhaustions}, each named by its errors; all others went on"));
    }
    for (exhaustion, times) in &tally.exhaustions {
        line(format!("  {times:5} {}", exhaustion.words()));
    }
    line(format!(
        "messages received and verified {}, {:.1} GB; {} unfinished by the dead, {} unread by the dead",
        found.messages,
        found.bytes as f64 / 1e9,
        found.unfinished,
        found.unread
    ));
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    line(format!(
        "messages of IUCV unanswered at a death {}, each reported to its source; {} were purged",
        found.unanswered, found.purged
    ));
    line(format!("paths severed {}, {} half made by a dead host", found.severed, found.half_made));
    line(format!(
        "the slowest survivor was notified {:.1} ms after the end of a process, {:.1} ms after the kill; the slowest end took {:.1} ms",
        ms(found.worst_after_end),
        ms(found.worst_after_kill),
        ms(found.dying)
    ));
    line(format!("inspections for leaks {}, leaks {}", tally.inspections, tally.leaks.len()));
    for (role, footprint) in &tally.footprints {
        line(format!("  {role}: {footprint}"));
    }
    let mut faults: Vec<String> = Vec::new();
    faults.extend(found.late.iter().map(|late| format!("late: {late}")));
    faults.extend(tally.leaks.iter().map(|leak| format!("leak: {leak}")));
    faults.extend(fault.map(|Fault(what)| format!("fault: {what}")));
    faults.iter().for_each(|fault| line(fault.clone()));
    let good = faults.is_empty();
    (text, good)
}
