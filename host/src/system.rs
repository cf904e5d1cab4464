//! The system file: which guests exist, and what each may do.
//!
//! ```toml
//! [host]                      # all of it may be left out
//! socket = "/run/siga.sock"   # where guests attach
//! mode = "0600"               # which users the file system lets attach
//! guests_max = 1024
//! memory_max = "4 GiB"        # that the host may have to hold for all its users: see docs/design/limits.md
//!
//! [[user]]                    # what one user's guests may take of the host, all together; left out: a share
//! name = "www"                # or a number; or "*", every user without a table of its own but the host's
//! guests_max = 64
//! descriptors_max = 1024
//! mappings_max = 4096
//! memory_max = "256 MiB"
//! pending_max = 32            # connections that may wait for one guest
//! requests_per_s = 10000
//! table_writes_per_s = 256    # changes of the address tables of LANs
//!
//! [[guest]]
//! name = "SERVER"             # or a pattern: "WEB*"
//! users = ["www", 1001]       # which users may attach as this guest; left out: the host's own user
//! groups = ["web"]            # or any member of these groups
//! connect = ["DATABASE"]      # which guests it may connect to; left out: none
//! manage = ["PAY*"]           # which resources it may manage; left out: none
//! guests_max = 16             # guests of this rule at once
//! paths_max = 64
//! messages_max = 1024         # messages that may wait: large ones in each queue of a path, all of a path of IUCV
//! storage_max = "1 GiB"       # data storage that all its paths together may lend
//! ```
//!
//! [`lan`] describes the tables of LANs, [`mod@line`] those of lines, [`adapter`] those of OSA adapters, [`machine`] those of TCPIP machines,
//! [`volume`] those of volumes.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use fabric::control::{Limit, Owner, PENDING_MAX, RuleName};
use fabric::name::{NAME_BYTES, Name};
use os::peer::Credentials;
use serde::Deserialize;
use toml::Spanned;

use self::adapter::{AdapterRule, WrittenAdapter};
use self::lan::{LanRule, WrittenLan};
use self::line::{LineKind, LineRule, WrittenLine};
use self::machine::{MachineRule, Places, WrittenMachine};
use self::volume::{Volumes, WrittenUnit, WrittenVolume};
use crate::config::{Bytes, FileError, Source};

pub mod adapter;
pub mod distributed;
pub mod interface;
pub mod lan;
pub mod line;
pub mod machine;
pub mod outline;
pub mod outside;
pub mod volume;
mod warnings;

/// Guests that a system may have at once, unless the file sets another limit.
pub const GUESTS_MAX: usize = 4096;

/// Paths that a guest may have, unless the file sets another limit.
pub const PATHS_MAX: usize = 4096;

/// Messages that may wait on a path: the greatest limit, and the limit unless the file sets another.
pub const MESSAGES_MAX: u32 = 65_535;

/// Data storage that a guest's paths may lend, unless the file sets another limit. It is address space:
/// memory is taken by what is used of it.
pub const STORAGE_BYTES_MAX: u64 = 64 << 30;

/// Memory that the host may have to hold for all its users, unless the file sets another limit.
pub const MEMORY_BYTES_MAX: u64 = 4 << 30;

/// Requests of a user in a second, unless the file sets another limit. The host's own user has none.
pub const REQUESTS_PER_S: u64 = 10_000;

/// Changes of the address tables of LANs that a user may cause in a second, unless the file sets another limit. The
/// host's own user has none.
pub const TABLE_WRITES_PER_S: u64 = 256;

/// A system, as a file describes it.
#[derive(Clone, Debug)]
pub struct System {
    /// Where guests attach; `None` is the usual place.
    pub socket: Option<PathBuf>,
    /// Permissions of that place.
    pub mode: u32,
    /// Guests at once.
    pub guests_max: usize,
    /// Memory that the host may have to hold for all its users, in bytes.
    pub memory_max: u64,
    /// The user that the host runs as, by the number that it had when the system was described: asked for once.
    own_user: u32,
    /// Set if there is no file.
    is_open: bool,
    rules: Vec<Rule>,
    users: Vec<UserRule>,
    /// The LANs, by their names.
    pub lans: Vec<LanRule>,
    /// The TCPIP machines.
    pub machines: Vec<MachineRule>,
    /// The lines, in the order of the file.
    pub lines: Vec<LineRule>,
    /// The OSA adapters, in the order of the file.
    pub adapters: Vec<AdapterRule>,
    /// The volumes, if there are any.
    pub volumes: Option<Volumes>,
    /// Settings that are probably mistakes, in the order of the file. A host serves such a system all the same.
    pub warnings: Vec<FileError>,
}

/// What a guest may do.
#[derive(Clone, Debug)]
pub struct Rule {
    name: Pattern,
    users: Vec<u32>,
    groups: Vec<u32>,
    connect: Vec<Pattern>,
    manage: Vec<Pattern>,
    /// Guests of this rule at once.
    pub guests_max: u64,
    /// Paths at once.
    pub paths_max: usize,
    /// Messages that may wait: large ones in each queue of a path of messages, all of a path of IUCV.
    pub messages_max: u32,
    /// Data storage that all its paths together may lend, in bytes.
    pub storage_bytes_max: u64,
}

/// Limits of all guests of one user together. A limit that is left out is a share of what the host has.
#[derive(Clone, Debug, Default)]
struct UserRule {
    /// None for every user that has no rule of its own.
    user: Option<u32>,
    guests_max: Option<u64>,
    descriptors_max: Option<u64>,
    mappings_max: Option<u64>,
    memory_max: Option<u64>,
    pending_max: Option<u64>,
    requests_per_s: Option<u64>,
    table_writes_per_s: Option<u64>,
}

/// How often in a second a user may have something done; none is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rates {
    pub(crate) requests: Option<u64>,
    pub(crate) table_writes: Option<u64>,
}

/// A name, or the beginning of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    Name(Name),
    Beginning(String),
}

impl Pattern {
    /// A pattern in a file.
    fn read(text: &Spanned<String>, source: &Source) -> Result<Pattern, FileError> {
        Pattern::parse(text.get_ref()).ok_or_else(|| {
            let what = format!("{:?} is no name", text.get_ref());
            let right = "must be 1 to 8 of A-Z 0-9 $ # @ _ -, or the beginning of one and *";
            source.error(text.span(), what, right)
        })
    }

    fn parse(text: &str) -> Option<Pattern> {
        match text.strip_suffix('*') {
            Some("") => Some(Pattern::Beginning(String::new())),
            Some(beginning) if beginning.len() < NAME_BYTES => {
                beginning.parse::<Name>().ok().map(|name| Pattern::Beginning(name.as_str().into()))
            }
            Some(_) => None,
            None => text.parse().ok().map(Pattern::Name),
        }
    }

    /// Returns true if some name matches both.
    fn has_names_of(&self, other: &Pattern) -> bool {
        match (self, other) {
            (Pattern::Name(own), _) => other.matches(*own),
            (_, Pattern::Name(other)) => self.matches(*other),
            (Pattern::Beginning(own), Pattern::Beginning(other)) => {
                own.starts_with(other.as_str()) || other.starts_with(own.as_str())
            }
        }
    }

    pub(crate) fn matches(&self, name: Name) -> bool {
        match self {
            Pattern::Name(own) => *own == name,
            Pattern::Beginning(beginning) => name.as_str().starts_with(beginning.as_str()),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Name(name) => write!(formatter, "{name}"),
            Pattern::Beginning(beginning) => write!(formatter, "{beginning}*"),
        }
    }
}

impl System {
    /// A system in which this user's processes may be any guest and connect to any other, with a LAN `hs0`.
    pub fn open() -> System {
        let any = Pattern::Beginning(String::new());
        let rule =
            Rule { connect: vec![any.clone()], manage: vec![any.clone()], ..Rule::of_own(any) };
        let (rules, lans) = (vec![rule], vec![LanRule::open()]);
        let (volumes, warnings) = (None, Vec::new());
        System {
            socket: None,
            mode: 0o600,
            guests_max: GUESTS_MAX,
            memory_max: MEMORY_BYTES_MAX,
            own_user: Credentials::own().user,
            is_open: true,
            rules,
            users: Vec::new(),
            lans,
            machines: Vec::new(),
            lines: Vec::new(),
            adapters: Vec::new(),
            volumes,
            warnings,
        }
    }

    /// Reads a system file.
    ///
    /// # Errors
    /// [`FileError`]: where, what is wrong, what would be right.
    pub fn read(file: &Path) -> Result<System, FileError> {
        System::parse(&Source::read(file)?)
    }

    /// Takes the text of a system file apart.
    ///
    /// # Errors
    /// [`FileError`]: where, what is wrong, what would be right.
    pub fn parse(source: &Source) -> Result<System, FileError> {
        let written: Written = source.parse()?;
        let mut warnings = warnings::warnings(source, &written);
        let host = written.host;
        let mode = match host.mode {
            None => 0o600,
            Some(mode) => u32::from_str_radix(mode.get_ref(), 8)
                .ok()
                .filter(|bits| *bits <= 0o777)
                .ok_or_else(|| {
                    let what = format!("mode = {:?}", mode.get_ref());
                    source.error(mode.span(), what, "must be three octal digits, like \"0600\"")
                })?,
        };
        let guests_max = match host.guests_max {
            None => GUESTS_MAX,
            Some(number) => within(source, "guests_max", number, 1, 1 << 20)? as usize,
        };
        let memory_max = match host.memory_max {
            None => MEMORY_BYTES_MAX,
            Some(bytes) => within_bytes(source, "memory_max", bytes, 1 << 20, 1 << 46)?,
        };
        let mut users: Vec<UserRule> = Vec::new();
        for user in written.user {
            let span = user.name.span();
            let rule = user.rule(source)?;
            if users.iter().any(|other| other.user == rule.user) {
                let right = "must be described once";
                return Err(source.error(span, "this user is described above", right));
            }
            users.push(rule);
        }
        let mut rules: Vec<Rule> = Vec::new();
        let spans: Vec<_> = written.guest.iter().map(|guest| guest.name.span()).collect();
        for guest in written.guest {
            let span = guest.name.span();
            let rule = guest.rule(source)?;
            if rules.iter().any(|other| other.name == rule.name) {
                let right = "must be described once";
                return Err(source.error(span, "a guest of this name is described above", right));
            }
            rules.push(rule);
        }
        let mut lans = lan::rules(source, written.lan)?;
        for lan in &lans {
            let Some(way) = &lan.outside else { continue };
            let name = Pattern::Name(way.gateway);
            if let Some(at) = rules.iter().position(|rule| rule.name == name) {
                let what = format!("{} is the gateway of the LAN {}", way.gateway, lan.name);
                return Err(source.error(spans[at].clone(), what, "must have another name"));
            }
        }
        let names: Vec<String> = written.tcpip.iter().map(|one| one.name().to_owned()).collect();
        let mut lines = line::rules(source, written.line, &rules, &names)?;
        let mut adapters = adapter::rules(source, written.osa, &mut lans)?;
        let mut places = Places { lans: &mut lans, lines: &mut lines, adapters: &mut adapters };
        let machines = machine::rules(source, written.tcpip, &rules, &mut places, &mut warnings)?;
        warnings.sort_by_key(|warning| warning.line);
        let gateways = lans.iter().filter_map(|lan| lan.outside.as_ref());
        rules.extend(gateways.map(|way| Rule::of_own(Pattern::Name(way.gateway))));
        for machine in &machines {
            rules.extend(machine.guests().map(|name| Rule::of_own(Pattern::Name(name))));
        }
        if lines.iter().any(|line| line.kind == LineKind::Ctc) {
            rules.push(Rule::of_own(Pattern::Name(line::server())));
        }
        let volumes = volume::rules(source, written.control_unit, written.volume, &rules)?;
        if let Some(volumes) = &volumes {
            let rule = Rule::of_own(Pattern::Name(volumes.control_unit));
            rules.push(Rule { storage_bytes_max: volumes.storage_bytes_max, ..rule });
        }
        adapter::are_alone(&adapters, &rules, &machines, &lines, volumes.as_ref())?;
        let own = adapters.iter().flat_map(AdapterRule::own_guests);
        rules.extend(own.map(|name| Rule::of_own(Pattern::Name(name))));
        let socket = host.socket;
        Ok(System {
            socket,
            mode,
            guests_max,
            memory_max,
            own_user: Credentials::own().user,
            is_open: false,
            rules,
            users,
            lans,
            machines,
            lines,
            adapters,
            volumes,
            warnings,
        })
    }

    /// Guests that have a rule of their own.
    pub(crate) fn named(&self) -> impl Iterator<Item = Name> {
        self.rules.iter().filter_map(|rule| match rule.name {
            Pattern::Name(name) => Some(name),
            Pattern::Beginning(_) => None,
        })
    }

    /// Returns true if a process with these credentials may observe: root, and the host's own user.
    pub(crate) fn lets_observe(&self, credentials: &Credentials) -> bool {
        credentials.user == 0 || credentials.user == self.own_user
    }

    /// Returns true if a process with these credentials may be some guest, or observe.
    pub(crate) fn admits(&self, credentials: &Credentials) -> bool {
        self.lets_observe(credentials) || self.rules.iter().any(|rule| rule.permits(credentials))
    }

    /// Returns true if a user other than the host's may be some guest.
    pub(crate) fn admits_others(&self) -> bool {
        let admits = |rule: &Rule| {
            !rule.groups.is_empty() || rule.users.iter().any(|user| *user != self.own_user)
        };
        self.rules.iter().any(admits)
    }

    /// Returns the rule of the file for a user.
    fn user_rule(&self, owner: Owner) -> Option<&UserRule> {
        self.user_rule_where(owner, os::peer::unmapped())
    }

    /// Returns the rule of the file for a user, where `unmapped` stands for all users without a number.
    fn user_rule_where(&self, owner: Owner, unmapped: Option<u32>) -> Option<&UserRule> {
        let user = match owner {
            Owner::User(user) => Some(user),
            Owner::Unmapped => unmapped,
            _ => None,
        };
        let own = user.and_then(|user| self.users.iter().find(|rule| rule.user == Some(user)));
        // Users without a number are never the host's own user, which may have none either.
        let is_own = owner == Owner::User(self.own_user);
        own.or_else(|| self.users.iter().find(|rule| rule.user.is_none() && !is_own))
    }

    /// Returns a user's limit as the file sets it. None if the file leaves it out.
    pub(crate) fn user_limit(&self, owner: Owner, limit: Limit) -> Option<u64> {
        let rule = self.user_rule(owner)?;
        match limit {
            Limit::Guests => rule.guests_max,
            Limit::Descriptors => rule.descriptors_max,
            Limit::Mappings => rule.mappings_max,
            Limit::Memory => rule.memory_max,
            Limit::Pending => rule.pending_max,
            _ => None,
        }
    }

    /// How often in a second a user may have something done.
    pub(crate) fn user_rates(&self, owner: Owner, is_own: bool) -> Rates {
        let rule = self.user_rule(owner);
        let or = |set: fn(&UserRule) -> Option<u64>, most| {
            rule.and_then(set).or((!is_own).then_some(most))
        };
        Rates {
            requests: or(|rule| rule.requests_per_s, REQUESTS_PER_S),
            table_writes: or(|rule| rule.table_writes_per_s, TABLE_WRITES_PER_S),
        }
    }

    /// Guests that a rule may have at once.
    pub(crate) fn guests_max_of(&self, name: RuleName) -> u64 {
        let rule = self.rules.iter().find(|rule| rule.rule_name() == name);
        rule.map_or(0, |rule| rule.guests_max)
    }

    /// Whether a guest may connect to another: the file says so, that other serves it a volume, sockets, a line or an adapter, or both are at the
    /// ends of a line over IUCV.
    pub fn may_connect(&self, guest: Name, target: Name) -> bool {
        let is_served = |volumes: &Volumes| {
            volumes.control_unit == target && volumes.devices().any(|device| device.guest == guest)
        };
        let serves = |machine: &MachineRule| machine.name == target && machine.serves(guest);
        let is_line = |line: &LineRule| match line.kind {
            LineKind::Iucv => line.joins(guest, target),
            LineKind::Ctc => target == line::server() && line.end_of(guest).is_some(),
        };
        self.volumes.as_ref().is_some_and(is_served)
            || self.machines.iter().any(serves)
            || self.lines.iter().any(is_line)
            || self.adapters.iter().any(|one| one.server == target && one.serves(guest))
            || self.rule(guest).is_some_and(|rule| rule.may_connect(target))
    }

    /// Returns true if a guest may capture at the port of the adapter that another serves: the file says so of the adapter, or there is no file.
    pub fn may_capture_at(&self, guest: Name, server: Name) -> bool {
        match self.adapters.iter().find(|adapter| adapter.server == server) {
            Some(adapter) => guest != server && adapter.may_capture(guest),
            None => self.is_open,
        }
    }

    /// Returns true if one TCPIP machine serves both, and may have them get a path of their own for the connections between them; or they may have any
    /// path.
    pub(crate) fn may_be_introduced(&self, one: Name, other: Name) -> bool {
        self.introducers(one, other).next().is_some() || self.may_connect(one, other)
    }

    /// The TCPIP machines that serve both, and may have them get a path of their own.
    pub(crate) fn introducers(&self, one: Name, other: Name) -> impl Iterator<Item = Name> {
        let serves = move |machine: &&MachineRule| {
            one != other && machine.introduce && machine.serves(one) && machine.serves(other)
        };
        self.machines.iter().filter(serves).map(|machine| machine.name)
    }

    /// Returns true if both may be members of one LAN.
    pub(crate) fn may_share_lan(&self, one: Name, other: Name) -> bool {
        let may_be = |lan: &LanRule, guest| lan.may_join(guest) || lan.may_capture(guest);
        self.lans.iter().any(|lan| may_be(lan, one) && may_be(lan, other))
    }

    /// The rule for a guest of this name: the first whose name it is, or else the first whose pattern it
    /// matches.
    pub fn rule(&self, name: Name) -> Option<&Rule> {
        let exact = self.rules.iter().find(|rule| rule.name == Pattern::Name(name));
        exact.or_else(|| self.rules.iter().find(|rule| rule.name.matches(name)))
    }
}

impl Rule {
    /// A rule for this user's own processes, which connect to nobody.
    fn of_own(name: Pattern) -> Rule {
        Rule {
            name,
            users: vec![Credentials::own().user],
            groups: Vec::new(),
            connect: Vec::new(),
            manage: Vec::new(),
            guests_max: u64::MAX,
            paths_max: PATHS_MAX,
            messages_max: MESSAGES_MAX,
            storage_bytes_max: STORAGE_BYTES_MAX,
        }
    }

    /// The rule, as a refusal names it.
    pub(crate) fn rule_name(&self) -> RuleName {
        match &self.name {
            Pattern::Name(name) => RuleName::of(*name),
            Pattern::Beginning(text) => {
                RuleName::beginning(text).expect("a beginning is shorter than a name")
            }
        }
    }

    /// Returns true if the rule is for one guest, and not for a pattern of names.
    pub(crate) fn is_of_one_guest(&self) -> bool {
        matches!(self.name, Pattern::Name(_))
    }

    /// Whether it is for the guest of this name, and not for a pattern of names.
    fn is_named(&self, name: Name) -> bool {
        self.name == Pattern::Name(name)
    }

    /// Whether it is for the guest of this name, perhaps among others.
    fn is_for(&self, name: Name) -> bool {
        self.name.matches(name)
    }

    /// Whether a process with these credentials may be this guest.
    pub fn permits(&self, credentials: &Credentials) -> bool {
        self.users.contains(&credentials.user)
            || self.groups.iter().any(|group| credentials.groups.contains(group))
    }

    /// Whether this guest may connect to that one.
    pub fn may_connect(&self, target: Name) -> bool {
        self.connect.iter().any(|pattern| pattern.matches(target))
    }

    /// Whether this guest may manage that resource.
    pub fn may_manage(&self, resource: Name) -> bool {
        self.manage.iter().any(|pattern| pattern.matches(resource))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    host: WrittenHost,
    #[serde(default)]
    user: Vec<WrittenUser>,
    #[serde(default)]
    guest: Vec<WrittenGuest>,
    #[serde(default)]
    lan: Vec<WrittenLan>,
    #[serde(default)]
    tcpip: Vec<WrittenMachine>,
    #[serde(default)]
    line: Vec<WrittenLine>,
    #[serde(default)]
    osa: BTreeMap<Spanned<String>, WrittenAdapter>,
    control_unit: Option<WrittenUnit>,
    #[serde(default)]
    volume: Vec<WrittenVolume>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHost {
    socket: Option<PathBuf>,
    mode: Option<Spanned<String>>,
    guests_max: Option<Spanned<u64>>,
    memory_max: Option<Spanned<Bytes>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenUser {
    name: Spanned<Account>,
    guests_max: Option<Spanned<u64>>,
    descriptors_max: Option<Spanned<u64>>,
    mappings_max: Option<Spanned<u64>>,
    memory_max: Option<Spanned<Bytes>>,
    pending_max: Option<Spanned<u64>>,
    requests_per_s: Option<Spanned<u64>>,
    table_writes_per_s: Option<Spanned<u64>>,
}

impl WrittenUser {
    fn rule(self, source: &Source) -> Result<UserRule, FileError> {
        let user = match self.name.get_ref() {
            Account::Name(name) if name == "*" => None,
            _ => Some(Account::number(&self.name, source, "user", os::peer::user_number)?),
        };
        let number = |field, number: Option<_>, least, most| {
            number.map(|number| within(source, field, number, least, most)).transpose()
        };
        Ok(UserRule {
            user,
            guests_max: number("guests_max", self.guests_max, 0, 1 << 20)?,
            descriptors_max: number("descriptors_max", self.descriptors_max, 0, 1 << 30)?,
            mappings_max: number("mappings_max", self.mappings_max, 0, 1 << 30)?,
            memory_max: self
                .memory_max
                .map(|bytes| within_bytes(source, "memory_max", bytes, 0, 1 << 46))
                .transpose()?,
            pending_max: number("pending_max", self.pending_max, 0, PENDING_MAX as u64)?,
            requests_per_s: number("requests_per_s", self.requests_per_s, 1, 1 << 30)?,
            table_writes_per_s: number("table_writes_per_s", self.table_writes_per_s, 1, 1 << 30)?,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenGuest {
    name: Spanned<String>,
    users: Option<Vec<Spanned<Account>>>,
    #[serde(default)]
    groups: Vec<Spanned<Account>>,
    #[serde(default)]
    connect: Vec<Spanned<String>>,
    #[serde(default)]
    manage: Vec<Spanned<String>>,
    guests_max: Option<Spanned<u64>>,
    paths_max: Option<Spanned<u64>>,
    messages_max: Option<Spanned<u64>>,
    storage_max: Option<Spanned<Bytes>>,
}

/// A user or a group.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a name or a number")]
enum Account {
    Number(u32),
    Name(String),
}

impl Account {
    fn number(
        account: &Spanned<Account>,
        source: &Source,
        kind: &str,
        look_up: fn(&str) -> Option<u32>,
    ) -> Result<u32, FileError> {
        match account.get_ref() {
            Account::Number(number) => Ok(*number),
            Account::Name(name) => look_up(name).ok_or_else(|| {
                let what = format!("this machine has no {kind} {name:?}");
                source.error(
                    account.span(),
                    what,
                    format!("must be the name or number of a {kind}"),
                )
            }),
        }
    }
}

impl WrittenGuest {
    fn rule(self, source: &Source) -> Result<Rule, FileError> {
        let pattern = |text: &Spanned<String>| Pattern::read(text, source);
        let users = match &self.users {
            None => vec![Credentials::own().user],
            Some(users) => users
                .iter()
                .map(|user| Account::number(user, source, "user", os::peer::user_number))
                .collect::<Result<_, _>>()?,
        };
        let groups = self
            .groups
            .iter()
            .map(|group| Account::number(group, source, "group", os::peer::group_number))
            .collect::<Result<_, _>>()?;
        let connect = self.connect.iter().map(pattern).collect::<Result<_, _>>()?;
        let manage = self.manage.iter().map(pattern).collect::<Result<_, _>>()?;
        let guests_max = match self.guests_max {
            None => u64::MAX,
            Some(number) => within(source, "guests_max", number, 0, 1 << 20)?,
        };
        let paths_max = match self.paths_max {
            None => PATHS_MAX,
            Some(number) => within(source, "paths_max", number, 0, 1 << 20)? as usize,
        };
        let messages_max = match self.messages_max {
            None => MESSAGES_MAX,
            Some(number) => within(source, "messages_max", number, 1, MESSAGES_MAX.into())? as u32,
        };
        let storage_bytes_max = match self.storage_max {
            None => STORAGE_BYTES_MAX,
            Some(bytes) => within_bytes(source, "storage_max", bytes, 1 << 20, 1 << 46)?,
        };
        let name = pattern(&self.name)?;
        Ok(Rule {
            name,
            users,
            groups,
            connect,
            manage,
            guests_max,
            paths_max,
            messages_max,
            storage_bytes_max,
        })
    }
}

fn within(
    source: &Source,
    field: &str,
    number: Spanned<u64>,
    least: u64,
    most: u64,
) -> Result<u64, FileError> {
    let found = *number.get_ref();
    if (least..=most).contains(&found) {
        return Ok(found);
    }
    let what = format!("{field} = {found}");
    Err(source.error(number.span(), what, format!("must be {least} to {most}")))
}

fn within_bytes(
    source: &Source,
    field: &str,
    bytes: Spanned<Bytes>,
    least: u64,
    most: u64,
) -> Result<u64, FileError> {
    let (span, Bytes(bytes)) = (bytes.span(), bytes.into_inner());
    within(source, field, Spanned::new(span, bytes), least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<System, String> {
        System::parse(&Source::of("s.toml", text)).map_err(|error| error.to_string())
    }

    fn name(name: &str) -> Name {
        name.parse().unwrap()
    }

    fn credentials(user: u32, groups: &[u32]) -> Credentials {
        Credentials { process: Some(1), user, groups: groups.to_vec() }
    }

    #[test]
    fn system_says_who_may_be_whom_and_connect_to_whom() {
        let system = parse(
            r#"
            [host]
            socket = "/tmp/x.sock"
            mode = "0660"
            [[guest]]
            name = "WEB*"
            users = ["root", 1001]
            groups = [50]
            connect = ["DB", "LOG*"]
            paths_max = 3
            storage_max = "2 MiB"
            [[guest]]
            name = "WEB1"
            users = []
            "#,
        )
        .unwrap();
        assert_eq!(
            (system.socket.as_deref(), system.mode),
            (Some(Path::new("/tmp/x.sock")), 0o660)
        );
        let web = system.rule(name("WEB2")).unwrap();
        assert!(web.permits(&credentials(0, &[])) && web.permits(&credentials(1001, &[])));
        assert!(web.permits(&credentials(7, &[9, 50])));
        assert!(!web.permits(&credentials(7, &[9])));
        assert!(web.may_connect(name("DB")) && web.may_connect(name("LOG9")));
        assert!(!web.may_connect(name("DB2")) && !web.may_connect(name("WEB2")));
        assert_eq!((web.paths_max, web.storage_bytes_max), (3, 2 << 20));
        assert!(!system.rule(name("WEB1")).unwrap().permits(&credentials(0, &[])));
        assert!(system.rule(name("OTHER")).is_none());
    }

    #[test]
    fn faults_are_named_with_their_line_and_the_cure() {
        for (text, error) in [
            (
                "[[guest]]\nname = \"lower\"",
                "s.toml:2: \"lower\" is no name: must be 1 to 8 of A-Z 0-9 $ # @ _ -, or the beginning of one and *",
            ),
            (
                "[[guest]]\nname = \"A\"\n\npaths_max = 99999999",
                "s.toml:4: paths_max = 99999999: must be 0 to 1048576",
            ),
            (
                "[[guest]]\nname = \"A\"\nstorage_max = \"1 KiB\"",
                "s.toml:3: storage_max = 1024: must be 1048576 to 70368744177664",
            ),
            (
                "[[guest]]\nname = \"A\"\nusers = [\"no-such-user\"]",
                "s.toml:3: this machine has no user \"no-such-user\": must be the name or number of a user",
            ),
            (
                "[host]\nmode = \"999\"",
                "s.toml:2: mode = \"999\": must be three octal digits, like \"0600\"",
            ),
            (
                "[[guest]]\nname = \"A\"\n[[guest]]\nname = \"A\"",
                "s.toml:4: a guest of this name is described above: must be described once",
            ),
            (
                "[[user]]\nname = 7\n[[user]]\nname = 7",
                "s.toml:4: this user is described above: must be described once",
            ),
            (
                "[[user]]\nname = \"*\"\npending_max = 65",
                "s.toml:3: pending_max = 65: must be 0 to 64",
            ),
            ("[[guest]]\nnane = \"A\"", "s.toml:2: unknown field `nane`: did you mean `name`?"),
        ] {
            assert_eq!(parse(text).unwrap_err(), error);
        }
    }

    #[test]
    fn systems_that_come_along_are_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../systems");
        let files = std::fs::read_dir(folder).unwrap();
        let read = files.map(|file| System::read(&file.unwrap().path()).unwrap());
        assert!(read.filter(|system| system.volumes.is_some()).count() >= 1);
    }

    #[test]
    fn user_has_what_its_table_says_or_that_of_all_others_and_the_rest_is_a_share() {
        let system = parse(
            r#"
            [[user]]
            name = "*"
            guests_max = 5
            requests_per_s = 9
            [[user]]
            name = 1001
            mappings_max = 7
            memory_max = "1 MiB"
            [[guest]]
            name = "WEB*"
            users = [1001]
            guests_max = 3
            "#,
        )
        .unwrap();
        let limit = |user, limit| system.user_limit(Owner::User(user), limit);
        assert_eq!(limit(1001, Limit::Guests), None, "it has a table of its own");
        assert_eq!(limit(1001, Limit::Mappings), Some(7));
        assert_eq!(limit(1001, Limit::Memory), Some(1 << 20));
        assert_eq!(limit(1002, Limit::Guests), Some(5));
        assert_eq!(system.user_limit(Owner::Others, Limit::Guests), Some(5));
        let own = Credentials::own().user;
        assert_eq!(limit(own, Limit::Guests), None);
        let rates = |user, is_own| system.user_rates(Owner::User(user), is_own);
        assert_eq!(rates(own, true), Rates { requests: None, table_writes: None });
        let others = Rates { requests: Some(9), table_writes: Some(TABLE_WRITES_PER_S) };
        assert_eq!(rates(1002, false), others);
        assert_eq!(system.guests_max_of(RuleName::beginning("WEB").unwrap()), 3);
        assert!(system.admits_others() && !System::open().admits_others());
        assert!(system.admits(&credentials(1001, &[])) && !system.admits(&credentials(7, &[])));
        assert!(system.admits(&credentials(0, &[])), "root may observe");
    }

    #[test]
    fn limits_of_the_number_that_stands_for_many_users_are_theirs_together() {
        let text = "[[user]]\nname = 65534\nguests_max = 3\n[[user]]\nname = \"*\"\nguests_max = 5";
        let system = System::parse(&Source::of("s.toml", text)).unwrap();
        let guests_max = |unmapped| {
            let rule = system.user_rule_where(Owner::Unmapped, unmapped).unwrap();
            rule.guests_max
        };
        assert_eq!((guests_max(Some(65_534)), guests_max(None)), (Some(3), Some(5)));
        let nobody = system.user_rule_where(Owner::User(65_534), None).unwrap();
        assert_eq!(nobody.guests_max, Some(3), "a user like others");
    }

    #[test]
    fn open_system_lets_this_user_do_everything() {
        let system = System::open();
        let rule = system.rule(name("ANY")).unwrap();
        assert!(rule.permits(&Credentials::own()));
        assert!(rule.may_connect(name("OTHER")));
    }
}
