//! `siga gateway`: a LAN's way to other networks, through sockets of this process.

mod dns;
mod failure;
mod flows;
mod rules;
mod streams;
mod supervisor;

use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use os::poller::Poller;
use os::processor::now_ns;
use os::signals::HeldSignals;
use port::link::Links;
use port::member::{self, Options, WrittenAddress};
use serde::Serialize;
use siga::tcpip::{Asked, Counter, Outside, Prefix, Refusal, StackOptions, Stray, StrayKind};
use siga::{Name, Wait};

use self::dns::{Over, PORT as DNS_PORT, Question, Resolvers, answer_other};
use self::failure::{Failure, failure};
use self::flows::Flows;
use self::rules::Rules;
use self::streams::Streams;
pub use self::supervisor::gateways;
use crate::member::no_member;
use crate::notices::Notices;
use crate::outcome::Outcome;
use crate::output::{Output, print_json, say};
use crate::peer::attach_name;
use crate::route::Told;
use crate::session::is_query;
use crate::socket::Socket;

/// Connections at once unless an option says otherwise, and as many flows of datagrams, if the system gives the descriptors.
const CONNECTIONS_MAX: u64 = 2048;

/// Descriptors for each connection that may be: one for it, one for a flow, and two that are left to the LAN.
const DESCRIPTORS_PER_CONNECTION: usize = 4;

/// Bytes that a connection's buffers in the stack take at most, both ways.
const BUFFER_BYTES: usize = 512 << 10;

/// What members have asked for and sent that is looked at before others have their turn.
const TAKEN_PER_TURN: usize = 256;

/// Sockets that are begun for it before others have their turn: each takes several calls of the system. Sources take turns before that.
const BEGUN_PER_TURN: u64 = 16;

/// The poller's tokens for all that is neither a connection nor a flow, for standard input and for signals. The other tokens are numbers of these.
const OTHERS: u64 = 0;
const INPUT: u64 = 1;
const SIGNALS: u64 = 2;

/// Give the members of a LAN a way to other networks
///
/// Connections, datagrams and echo requests (ping) of members to addresses outside of the LAN go on through sockets of this process, so they reach
/// what this user reaches, and no rights are needed. Questions after names (DNS) to this gateway's own address are answered: names of
/// members here, others by the resolvers of this machine. `siga up` starts a gateway where the system file says `outside = true`, and without a system
/// file. Connections from outside to members are made by `siga forward`.
///
/// Not reached are the loopback interface, and, unless --to names them one by one, other addresses of this machine and those that are local to a link,
/// where clouds keep metadata. Runs until Ctrl-C.
///
/// For example: siga gateway hs0 --address 10.1.0.9, and then: siga run --gateway 10.1.0.9 -- curl https://www.debian.org
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The LAN, like hs0
    lan: String,
    /// An address of the gateway on the LAN, one for each family at most [default: the host chooses]
    #[arg(long = "address", value_name = "ADDRESS")]
    addresses: Vec<IpAddr>,
    /// The name to attach under, in capital letters or small ones [default: a new one]
    #[arg(long, value_parser = attach_name)]
    name: Option<String>,
    /// Guests that may use the gateway, by name or by the beginning of names and *, like WEB or CI* [default: all]
    #[arg(long, value_name = "GUEST")]
    guests: Vec<String>,
    /// A network that may be reached, like 192.0.2.0/24 [default: all but this machine]
    #[arg(long, value_name = "NETWORK")]
    to: Vec<Prefix>,
    /// A network that may not be reached, like 10.0.0.0/8, whatever --to says
    #[arg(long, value_name = "NETWORK")]
    refuse: Vec<Prefix>,
    /// The network of another LAN, of which only the networks may be reached that --to names
    #[arg(long, value_name = "NETWORK")]
    other: Vec<Prefix>,
    /// A resolver that names are asked of [default: those of /etc/resolv.conf]
    #[arg(long, value_name = "ADDRESS")]
    resolver: Vec<IpAddr>,
    /// Connections that may be open at once, and flows of datagrams. One guest gets at most half of those that are free
    #[arg(long, value_name = "NUMBER", default_value_t = CONNECTIONS_MAX, value_parser = clap::value_parser!(u64).range(1..=16_384))]
    connections: u64,
    /// Be the gateway that this system file asks for (outside = true of the LAN), with its name, addresses and rules, as `siga up` would start it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["addresses", "name", "guests", "to", "refuse", "other"])]
    system: Option<PathBuf>,
    /// End when standard input ends, as it does with the process that has started this one
    #[arg(long, hide = true)]
    until_input_ends: bool,
    #[command(flatten)]
    socket: Socket,
    #[command(flatten)]
    output: Output,
}

/// A gateway that is there, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Up {
    name: String,
    lan: String,
    addresses: Vec<IpAddr>,
    resolvers: Vec<SocketAddr>,
}

/// Serves until a signal ends it.
pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    if let Some(file) = &arguments.system {
        let Arguments { lan, socket, output, connections, resolver, .. } = arguments;
        // What a system file does not say.
        let mut more = vec![format!("--connections={connections}")];
        more.extend(resolver.iter().map(|at| format!("--resolver={at}")));
        return supervisor::become_gateway(file, lan, socket, *output, &more);
    }
    let held = HeldSignals::hold().map_err(Outcome::no)?;
    let first = arguments.addresses.first();
    let options = Options {
        socket: arguments.socket.path()?,
        lan: arguments.lan.clone(),
        name: arguments.name.clone(),
        address: first.map(|address| WrittenAddress { address: *address, prefix_bits: None }),
        routes: true,
        wait: Wait::Block,
        ..Options::default()
    };
    let joined = member::join(&options, "GATE".as_ref());
    let mut lan = joined.map_err(|error| no_member(&options, &error))?;
    for address in arguments.addresses.iter().skip(1) {
        lan.register(*address).map_err(Outcome::no)?;
    }
    let own = lan.addresses().iter();
    let own = own.filter_map(|own| Prefix::of(*own, lan.prefix_bits_of(*own))).collect();
    let rules = Rules {
        guests: arguments.guests.iter().map(|guest| guest.to_uppercase()).collect(),
        to: arguments.to.clone(),
        refused: arguments.refuse.clone(),
        others: arguments.other.clone(),
        own,
    };
    let named = &arguments.resolver;
    if let Some(itself) = named.iter().find(|at| lan.addresses().contains(&at.to_canonical())) {
        let what = format!("--resolver {itself}: must be another than the gateway itself");
        return Err(Outcome::Usage(what));
    }
    let named = named.iter().map(|at| SocketAddr::new(*at, DNS_PORT)).collect();
    let mut resolvers = Resolvers::new(named, lan.addresses().to_vec());
    let up = Up {
        name: lan.own().name.to_string(),
        lan: arguments.lan.clone(),
        addresses: lan.addresses().to_vec(),
        resolvers: resolvers.all(now_ns()).to_vec(),
    };
    let connections_max = arguments.connections as usize;
    let descriptors =
        os::memory::allow_descriptors((connections_max * DESCRIPTORS_PER_CONNECTION) as u64);
    let connections_max =
        (descriptors as usize / DESCRIPTORS_PER_CONNECTION).clamp(1, connections_max);
    let stack = StackOptions {
        connections_max: 2 * connections_max,
        pool_bytes: connections_max * BUFFER_BYTES,
        ..StackOptions::default()
    };
    let outside = Outside::new(lan, &stack).map_err(Outcome::no)?;
    let mut gateway =
        Gateway::new(outside, rules, resolvers, connections_max).map_err(Outcome::no)?;
    gateway.poller.add(held.as_fd(), SIGNALS).map_err(Outcome::no)?;
    if arguments.until_input_ends {
        gateway.poller.add(io::stdin(), INPUT).map_err(Outcome::no)?;
    }
    if arguments.output.json {
        // A pipe that nobody reads is no reason to end.
        let _ = print_json(&up);
    } else {
        let Up { name, lan, addresses, .. } = &up;
        let addresses: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
        say(format_args!("{name} is the gateway of the LAN {lan}, as {}", addresses.join(", ")));
    }
    gateway.serve(&held).map_err(Outcome::no)?;
    if arguments.output.json {
        let _ = print_json(&gateway.counted());
    }
    Ok(())
}

struct Gateway {
    outside: Outside,
    rules: Rules,
    resolvers: Resolvers,
    /// The socket that asks the kernel for routes.
    links: Links,
    poller: Poller,
    streams: Streams,
    flows: Flows,
    /// The last number of a connection or a flow.
    begun: u64,
    notices: Notices<(Name, Failure)>,
    told: Told,
}

impl Gateway {
    fn new(
        outside: Outside,
        rules: Rules,
        resolvers: Resolvers,
        connections_max: usize,
    ) -> io::Result<Gateway> {
        let poller = Poller::new()?;
        poller.add(&outside.descriptor()?, OTHERS)?;
        Ok(Gateway {
            outside,
            rules,
            resolvers,
            links: Links::open()?,
            poller,
            streams: Streams::new(connections_max),
            flows: Flows::new(connections_max),
            begun: SIGNALS,
            notices: Notices::default(),
            told: Told::default(),
        })
    }

    /// Serves until a signal asks to end, or standard input ends.
    fn serve(&mut self, held: &HeldSignals) -> io::Result<()> {
        loop {
            self.outside.poll()?;
            self.told.tell(self.outside.stack());
            let now = now_ns();
            self.flows.end_silent(now, &mut self.resolvers);
            let has_more = self.take_asked(now)? | self.take_strays(now)?;
            while let Some(number) = self.outside.take_changed()? {
                self.streams.change(number);
            }
            self.streams.carry(now, &self.outside)?;
            self.flows.receive(now, &self.outside, &mut self.resolvers)?;
            // What came while others were served may be for one that was served before: then the time is zero.
            let mut time = self.outside.prepare_wait()?;
            if has_more || self.streams.has_more() || self.flows.has_more() {
                time = Duration::ZERO;
            } else if let Some(due) = self.flows.due_ns() {
                time = time.min(Duration::from_nanos(due.saturating_sub(now_ns())));
            }
            let ready = self.poller.wait((time != Duration::MAX).then_some(time))?.to_vec();
            for number in ready {
                match number {
                    OTHERS => {}
                    SIGNALS => {
                        while let Some(signal) = held.take()? {
                            if signal.asks_to_end() {
                                return Ok(());
                            }
                        }
                    }
                    INPUT => match io::stdin().read(&mut [0; 64]) {
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                        Ok(1..) => {}
                        Ok(0) | Err(_) => return Ok(()),
                    },
                    _ if self.streams.wake(number, &self.outside, &mut self.resolvers)? => {}
                    _ => self.flows.wake(number),
                }
            }
        }
    }

    /// Looks at some of the connections that members ask for. Returns true if there may be more.
    fn take_asked(&mut self, now: u64) -> io::Result<bool> {
        let begun = self.begun;
        for _ in 0..TAKEN_PER_TURN {
            if self.begun - begun >= BEGUN_PER_TURN {
                break;
            }
            let Some(asked) = self.outside.take_asked()? else { return Ok(false) };
            let Err(failure) = self.begin_stream(now, asked) else { continue };
            failure.tell_asker(&self.outside, asked)?;
            self.say(failure, asked.guest, asked.destination);
        }
        Ok(true)
    }

    fn begin_stream(&mut self, now: u64, asked: Asked) -> Result<(), Failure> {
        // Not for a guest that has left. The share comes first: a guest that is beyond it costs no look at rules and routes.
        let guest =
            asked.guest.filter(|guest| !self.streams.is_full(*guest)).ok_or(Failure::Full)?;
        let to = self.admit(now, guest, (asked.destination, Over::Tcp))?;
        self.begun += 1;
        let begin = |gateway: &mut Gateway, to| {
            gateway.streams.begin(now, (asked, guest), to, &gateway.poller, gateway.begun)
        };
        self.begin_at(now, to, (to != asked.destination).then_some(Over::Tcp), begin)
    }

    /// Begins something to an address. If that is a resolver that cannot be asked, begins it to the next.
    fn begin_at(
        &mut self,
        now: u64,
        first: SocketAddr,
        resolver: Option<Over>,
        mut begin: impl FnMut(&mut Gateway, SocketAddr) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut to = first;
        loop {
            let (refusal, over) = match (begin(self, to), resolver) {
                (Err(Failure::Refused(refusal)), Some(over)) => (refusal, over),
                // Not by the rules of this gateway: the kernel lets nothing go there.
                (Err(Failure::Forbidden), Some(over)) => (Refusal::Host, over),
                (begun, _) => return begun,
            };
            self.resolvers.fail(to, over, now);
            let next = self.resolvers.current(now, over).filter(|next| ![first, to].contains(next));
            to = next.ok_or(Failure::Refused(refusal))?;
        }
    }

    /// Looks at some of the datagrams and echo requests that members send. Returns true if there may be more.
    fn take_strays(&mut self, now: u64) -> io::Result<bool> {
        let begun = self.begun;
        for _ in 0..TAKEN_PER_TURN {
            if self.begun - begun >= BEGUN_PER_TURN {
                break;
            }
            let Some((stray, guest)) = self.outside.take_stray()? else { return Ok(false) };
            let Some(guest) = guest else { continue };
            if self.answer_name(&stray)? {
                continue;
            }
            self.flows.end_unanswered(now, &stray, &mut self.resolvers);
            if !self.flows.has(&stray, guest)
                && let Err(failure) = self.begin_flow(now, &stray, guest)
            {
                let ends = (stray.destination, stray.source);
                failure.tell_sender(&self.outside, stray.kind, ends)?;
                self.say(failure, Some(guest), stray.destination);
                continue;
            }
            self.flows.send(now, &stray, &self.outside)?;
        }
        Ok(true)
    }

    fn begin_flow(&mut self, now: u64, stray: &Stray, guest: Name) -> Result<(), Failure> {
        let to = self.admit(now, guest, (stray.destination, Over::Udp))?;
        self.begun += 1;
        let begin = |gateway: &mut Gateway, to| {
            gateway.flows.begin(now, (stray, guest), to, &gateway.poller, gateway.begun)
        };
        self.begin_at(now, to, (to != stray.destination).then_some(Over::Udp), begin)?;
        self.outside.count(Counter::OutsideFlows, 1).map_err(|error| failure(&error))
    }

    /// Answers a question after the name of a member, and what is no question after a name. Returns false if the datagram is neither.
    fn answer_name(&mut self, stray: &Stray) -> io::Result<bool> {
        let Stray { kind, source, destination, data } = stray;
        if *kind != StrayKind::Datagram || !self.is_for_names(*destination) {
            return Ok(false);
        }
        let answer = match Question::parse(data) {
            Some(question) => {
                let addresses = self.outside.addresses_of(question.guest)?;
                (!addresses.is_empty()).then(|| question.answer(data, &addresses))
            }
            None => None,
        };
        let (answer, counter) = match answer {
            Some(answer) => (Some(answer), Counter::OutsideNames),
            None if is_query(data) => return Ok(false),
            None => (answer_other(data).map(Vec::from), Counter::OutsideForbidden),
        };
        let ends = (*destination, *source);
        let is_sent = answer.is_some_and(|answer| self.outside.send(*kind, ends, &answer).is_ok());
        self.outside.count(if is_sent { counter } else { Counter::OutsideDropped }, 1)?;
        Ok(true)
    }

    /// Returns true if that is where this gateway answers questions after names.
    fn is_for_names(&self, destination: SocketAddr) -> bool {
        destination.port() == DNS_PORT && self.is_own(destination.ip())
    }

    fn is_own(&self, address: IpAddr) -> bool {
        self.outside.stack().addresses().contains(&address)
    }

    /// Decides whether a guest may reach an address, and where that is.
    fn admit(
        &mut self,
        now: u64,
        guest: Name,
        (destination, over): (SocketAddr, Over),
    ) -> Result<SocketAddr, Failure> {
        if !self.rules.may_use(guest) {
            return Err(Failure::Forbidden);
        }
        if self.is_own(destination.ip()) {
            return match self.is_for_names(destination) {
                true => self.resolvers.current(now, over).ok_or(match self.resolvers.are_known() {
                    true => Failure::Refused(Refusal::Port),
                    false => Failure::Lacking,
                }),
                false => Err(Failure::Refused(Refusal::Port)),
            };
        }
        match self.rules.may_reach(destination.ip(), &mut self.links) {
            Ok(true) => Ok(destination),
            Ok(false) => Err(Failure::Forbidden),
            Err(error) => Err(failure(&error)),
        }
    }

    /// Says what is not carried on because of this side, now and then.
    fn say(&mut self, failure: Failure, guest: Option<Name>, destination: SocketAddr) {
        let why = match failure {
            Failure::Refused(_) => return,
            Failure::Forbidden => "the rules of this gateway forbid it",
            Failure::Full => "as many are open as may be (--connections), or as one guest may have",
            Failure::Lacking => "this system lacks descriptors, ports or memory",
            Failure::NoEcho => {
                "this user may send no echo requests (as root: sysctl net.ipv4.ping_group_range)"
            }
        };
        if let Some(guest) = guest {
            let what = || format!("{guest} does not reach {destination}: {why}");
            self.notices.say((guest, failure), what);
        }
    }

    /// Collects the counters that are not zero, as `--json` prints them at the end.
    fn counted(&self) -> std::collections::BTreeMap<&'static str, u64> {
        crate::route::counted(self.outside.stack())
    }
}
