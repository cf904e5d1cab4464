//! Accounts: what each user, each rule and the host as a whole has, and may have.
//!
//! Everything that a connection makes the host hold is charged to the user who made the connection, and to the
//! host. A user without a limit of its own in the system file may have half of what all other users leave: so
//! whatever one user takes, the next finds something. The page `limits.md` of the design has the whole table.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fabric::control::{Limit, Owner, Problem, Reached, RuleName, setting};
use fabric::name::Name;
use fabric::rate::TokenBucket;
use os::foreign::Account;
use os::peer::Credentials;

use super::REFUSED_MAX;
use crate::report::LimitReport;
use crate::system::{Rule, System};

/// Connections that have not attached yet, at most.
const STRANGERS_MAX: u64 = 256;

/// Of these, those of one user, whose share of them may be less.
const STRANGERS_PER_USER_MAX: u64 = 64;

/// Accounts of users that are kept, beside those of the host's own user and of root. Accounts of users who have nothing make room for others;
/// if all have something, a new user shares the account of the users without a rule.
const USERS_MAX: usize = 1024;

/// The number of root, who may observe.
const ROOT: u32 = 0;

/// The shortest time between two lines of the log about one user's refused connections.
const WARNING_NS: u64 = 1_000_000_000;

/// The part of everything that the host's own user leaves to others, where the system file lets others attach.
const OWN_USER_LEAVES: u64 = 8;

/// The part of the table writes of its user that one guest may cause in a second.
const GUEST_WRITES_SHARE: u64 = 2;

/// Descriptors that the host needs for itself.
const OWN_DESCRIPTORS: u64 = 64;

/// Mappings that the host needs for itself.
const OWN_MAPPINGS: u64 = 512;

/// The limits that are counted by user, and by the host as a whole.
const COUNTED: [Limit; 5] =
    [Limit::Strangers, Limit::Guests, Limit::Descriptors, Limit::Mappings, Limit::Memory];

/// How much of something an owner has, and how often more was refused.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    used: AtomicU64,
    refused: AtomicU64,
}

impl Gauge {
    // Relaxed, all through: numbers of one thread, or to be looked at.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Counts a refusal.
    pub(super) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// A charge on the accounts of some owners, given back when it is dropped.
#[derive(Debug)]
#[must_use = "what is charged is given back when the charge is dropped"]
pub(super) struct Charge {
    gauges: [Option<Arc<Gauge>>; 3],
    amount: u64,
}

impl Charge {
    fn new(gauges: [Option<&Arc<Gauge>>; 3], amount: u64) -> Charge {
        let gauges = gauges.map(|gauge| gauge.cloned());
        for gauge in gauges.iter().flatten() {
            gauge.used.fetch_add(amount, Ordering::Relaxed);
        }
        Charge { gauges, amount }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        for gauge in self.gauges.iter().flatten() {
            gauge.used.fetch_sub(self.amount, Ordering::Relaxed);
        }
    }
}

/// A gauge for each limit that is counted.
#[derive(Debug, Default)]
struct Book {
    gauges: [Arc<Gauge>; COUNTED.len()],
}

impl Book {
    fn gauge(&self, limit: Limit) -> &Arc<Gauge> {
        &self.gauges[at(limit)]
    }

    fn is_empty(&self) -> bool {
        self.gauges.iter().all(|gauge| gauge.used() == 0)
    }
}

/// The place of a limit among those that are counted.
fn at(limit: Limit) -> usize {
    COUNTED.iter().position(|counted| *counted == limit).expect("a limit that is counted")
}

/// The account of a user.
#[derive(Debug)]
struct User {
    book: Book,
    requests: TokenBucket,
    writes: TokenBucket,
    /// Table writes of guests that have left, as far as they count still: who attaches again has no others.
    writes_of_former: BTreeMap<Name, TokenBucket>,
    /// Descriptors that the user has passed, as far as they wait to be closed, and connections refused for that.
    passed: Account,
    turned_away: Gauge,
    /// Refusals of the share that the user has of the connections that wait for one guest.
    pending: Gauge,
    /// When the log may have the next line about its refused connections, and how many had none.
    warned_until_ns: u64,
    unwarned: u64,
}

impl User {
    fn is_idle(&self, now_ns: u64) -> bool {
        let holds_nothing = self.book.is_empty() && self.passed.waiting() == 0;
        let mut rates = self.writes_of_former.values().chain([&self.requests, &self.writes]);
        holds_nothing && rates.all(|rate| rate.is_full(now_ns))
    }
}

/// All accounts of a host.
#[derive(Debug)]
pub(super) struct Accounts {
    host: Book,
    /// How much there is of each.
    most: [u64; COUNTED.len()],
    users: BTreeMap<Owner, User>,
    rules: BTreeMap<RuleName, Arc<Gauge>>,
    own_user: Owner,
    /// Others than the host's user may attach.
    admits_others: bool,
}

impl Accounts {
    pub(super) fn new(system: &System) -> Accounts {
        let descriptors = os::memory::descriptors_max().saturating_sub(OWN_DESCRIPTORS);
        let mappings = os::memory::mappings_max().saturating_sub(OWN_MAPPINGS);
        Accounts {
            host: Book::default(),
            most: COUNTED.map(|limit| match limit {
                Limit::Strangers => STRANGERS_MAX,
                Limit::Guests => system.guests_max as u64,
                Limit::Descriptors => descriptors,
                Limit::Mappings => mappings,
                _ => system.memory_max,
            }),
            users: BTreeMap::new(),
            rules: BTreeMap::new(),
            own_user: owner_of(system, &Credentials::own()),
            admits_others: system.admits_others(),
        }
    }

    /// The account of whoever has these credentials, which exists from now on.
    pub(super) fn open(
        &mut self,
        system: &System,
        credentials: &Credentials,
        now_ns: u64,
    ) -> Owner {
        let mut owner = owner_of(system, credentials);
        let has_place = owner == self.own_user || owner == Owner::User(ROOT);
        if self.users.len() >= USERS_MAX && !has_place && !self.users.contains_key(&owner) {
            self.users.retain(|_, user| !user.is_idle(now_ns));
            if self.users.len() >= USERS_MAX {
                owner = Owner::Others;
            }
        }
        let is_own = owner == self.own_user;
        self.users.entry(owner).or_insert_with(|| {
            let rates = system.user_rates(owner, is_own);
            User {
                book: Book::default(),
                requests: TokenBucket::new(rates.requests),
                writes: TokenBucket::new(rates.table_writes),
                writes_of_former: BTreeMap::new(),
                passed: Account::default(),
                turned_away: Gauge::default(),
                pending: Gauge::default(),
                warned_until_ns: 0,
                unwarned: 0,
            }
        });
        owner
    }

    /// How much of it an owner may have.
    fn most(&self, system: &System, owner: Owner, limit: Limit) -> u64 {
        let all = self.most[at(limit)];
        if let Some(most) = system.user_limit(owner, limit) {
            return most;
        }
        let own = self.users.get(&owner).map_or(0, |user| user.book.gauge(limit).used());
        let others = self.host.gauge(limit).used().saturating_sub(own);
        let share = self.share(owner, all, others);
        match limit {
            Limit::Strangers => share.min(STRANGERS_PER_USER_MAX),
            _ => share,
        }
    }

    /// How much an owner may have of `all`, of which other owners have `others`.
    pub(super) fn share(&self, owner: Owner, all: u64, others: u64) -> u64 {
        match owner == self.own_user {
            true if self.admits_others => all - all / OWN_USER_LEAVES,
            true => all,
            false => all.saturating_sub(others) / 2,
        }
    }

    /// Charges something to an owner and to the host.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(super) fn charge(
        &mut self,
        system: &System,
        owner: Owner,
        limit: Limit,
        amount: u64,
    ) -> Result<Charge, Problem> {
        let most = self.most(system, owner, limit);
        self.charge_up_to(owner, limit, amount, most)
    }

    fn charge_up_to(
        &mut self,
        owner: Owner,
        limit: Limit,
        amount: u64,
        most: u64,
    ) -> Result<Charge, Problem> {
        let of_host = self.host.gauge(limit);
        let of_user = self.users.get(&owner).expect("it was opened").book.gauge(limit);
        let all = self.most[at(limit)];
        for (gauge, owner, most) in [(of_host, Owner::Host, all), (of_user, owner, most)] {
            if gauge.used() + amount > most {
                gauge.refuse();
                return Err(Problem::Limit(Reached { limit, owner, most }));
            }
        }
        Ok(Charge::new([Some(of_host), Some(of_user), None], amount))
    }

    /// Charges a guest to its rule and the host, and to its user unless the system file names the guest. The file lets
    /// `kept` other guests attach by name that have not: their places are kept from guests of patterns. A guest that the
    /// file names has its place, whatever else its user has.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(super) fn charge_guest(
        &mut self,
        system: &System,
        owner: Owner,
        rule: &Rule,
        kept: u64,
    ) -> Result<Charge, Problem> {
        let limit = Limit::Guests;
        let name = rule.rule_name();
        let is_named = rule.is_of_one_guest();
        let (most_of_user, kept) =
            if is_named { (u64::MAX, 0) } else { (self.most(system, owner, limit), kept) };
        let of_rule = self.rules.entry(name).or_default();
        let of_host = self.host.gauge(limit);
        let of_user = self.users.get(&owner).expect("it was opened").book.gauge(limit);
        let all = self.most[at(limit)];
        for (gauge, owner, most, taken) in [
            (&*of_rule, Owner::Rule(name), rule.guests_max, 0),
            (of_host, Owner::Host, all, kept),
            (of_user, owner, most_of_user, 0),
        ] {
            if gauge.used() + taken >= most {
                gauge.refuse();
                return Err(Problem::Limit(Reached { limit, owner, most }));
            }
        }
        let of_user = Some(of_user).filter(|_| !is_named);
        Ok(Charge::new([Some(of_host), of_user, Some(of_rule)], 1))
    }

    /// Charges a connection that has not attached. It has few of its own, because whoever may connect may do so.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(super) fn charge_stranger(
        &mut self,
        system: &System,
        owner: Owner,
    ) -> Result<Charge, Problem> {
        self.charge(system, owner, Limit::Strangers, 1)
    }

    /// The account of descriptors that an owner has passed.
    pub(super) fn passed(&self, owner: Owner) -> &Account {
        &self.users.get(&owner).expect("it was opened").passed
    }

    /// Checks that not too many descriptors wait to be closed that an owner has passed.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(super) fn check_refused(&self, owner: Owner) -> Result<(), Problem> {
        let user = self.users.get(&owner).expect("it was opened");
        if user.passed.waiting() <= REFUSED_MAX {
            return Ok(());
        }
        user.turned_away.refuse();
        let (limit, most) = (Limit::Refused, REFUSED_MAX as u64);
        Err(Problem::Limit(Reached { limit, owner, most }))
    }

    /// A connection of an owner is refused. Returns how many were refused that the log has no line about, if it is to have one now: a
    /// user can connect as often as the machine lets it.
    pub(super) fn warn_refused(&mut self, owner: Owner, now_ns: u64) -> Option<u64> {
        let user = self.users.get_mut(&owner)?;
        if now_ns < user.warned_until_ns {
            user.unwarned += 1;
            return None;
        }
        user.warned_until_ns = now_ns + WARNING_NS;
        Some(std::mem::take(&mut user.unwarned))
    }

    /// Counts that an owner was refused another connection to a guest.
    pub(super) fn refuse_pending(&self, owner: Owner) {
        if let Some(user) = self.users.get(&owner) {
            user.pending.refuse();
        }
    }

    /// When the next request of an owner may be taken: now if none.
    pub(super) fn due_ns(&self, owner: Owner, now_ns: u64) -> Option<u64> {
        let user = self.users.get(&owner)?;
        let due = [&user.requests, &user.writes].into_iter().filter_map(|rate| rate.due_ns(now_ns));
        due.max()
    }

    /// Counts that requests of an owner wait because it has made too many.
    pub(super) fn put_off(&mut self, owner: Owner, now_ns: u64) {
        let Some(user) = self.users.get_mut(&owner) else { return };
        for rate in [&mut user.requests, &mut user.writes] {
            rate.put_off(now_ns);
        }
    }

    /// An owner has made requests, or one that costs as much.
    pub(super) fn count_requests(&mut self, owner: Owner, cost: u64, now_ns: u64) {
        if let Some(user) = self.users.get_mut(&owner) {
            user.requests.take(cost, now_ns);
        }
    }

    /// An owner has had the address table of a LAN changed.
    pub(super) fn count_table_write(&mut self, owner: Owner, now_ns: u64) {
        if let Some(user) = self.users.get_mut(&owner) {
            user.writes.take(1, now_ns);
        }
    }

    /// Changes of address tables that a guest of an owner may cause, which attaches now. What it has caused under that name before
    /// counts still.
    pub(super) fn writes_of_guest(&mut self, owner: Owner, name: Name) -> TokenBucket {
        let Some(user) = self.users.get_mut(&owner) else { return TokenBucket::new(None) };
        let per_s = user.writes.per_s().map(|per_s| (per_s / GUEST_WRITES_SHARE).max(1));
        user.writes_of_former.remove(&name).unwrap_or_else(|| TokenBucket::new(per_s))
    }

    /// A guest of an owner has left. What does not count any more is forgotten, so that as many are kept as a user can have change a
    /// table in a second, at most.
    pub(super) fn keep_writes(
        &mut self,
        owner: Owner,
        name: Name,
        writes: TokenBucket,
        now_ns: u64,
    ) {
        let Some(user) = self.users.get_mut(&owner) else { return };
        user.writes_of_former.retain(|_, writes| !writes.is_full(now_ns));
        if !writes.is_full(now_ns) {
            user.writes_of_former.insert(name, writes);
        }
    }

    /// All limits of the host, its users and its rules. `pending` has the connections of each user that wait for one guest, where they are
    /// most.
    pub(super) fn report(
        &self,
        system: &System,
        pending: &BTreeMap<Owner, u64>,
        now_ns: u64,
    ) -> Vec<LimitReport> {
        let row = |limit, owner, gauge: &Gauge, most| {
            LimitReport::of(limit, owner, gauge.used(), most, gauge.refused())
        };
        let mut rows = Vec::new();
        for limit in COUNTED {
            rows.push(row(limit, Owner::Host, self.host.gauge(limit), self.most[at(limit)]));
        }
        for (owner, user) in &self.users {
            for limit in COUNTED {
                let most = self.most(system, *owner, limit);
                rows.push(row(limit, *owner, user.book.gauge(limit), most));
            }
            for (limit, rate) in
                [(Limit::Requests, &user.requests), (Limit::TableWrites, &user.writes)]
            {
                let Some(most) = rate.per_s() else { continue };
                rows.push(LimitReport::of(
                    limit,
                    *owner,
                    rate.used(now_ns),
                    most,
                    rate.times_put_off(),
                ));
            }
            rows.push(LimitReport::of(
                Limit::Refused,
                *owner,
                user.passed.waiting() as u64,
                REFUSED_MAX as u64,
                user.turned_away.refused(),
            ));
            let (used, refused) =
                (pending.get(owner).copied().unwrap_or(0), user.pending.refused());
            if used > 0 || refused > 0 {
                let most = system.user_limit(*owner, Limit::Pending);
                let most = most.unwrap_or_else(|| self.share(*owner, PENDING, 0));
                rows.push(LimitReport::of(Limit::Pending, *owner, used, most, refused));
            }
        }
        for (name, gauge) in &self.rules {
            let most = system.guests_max_of(*name);
            rows.push(row(Limit::Guests, Owner::Rule(*name), gauge, most));
        }
        rows
    }

    /// Changes how much there is, for tests that reach it.
    #[cfg(test)]
    pub(super) fn set_most(&mut self, limit: Limit, most: u64) {
        self.most[at(limit)] = most;
    }
}

/// Connections that may wait for one guest.
const PENDING: u64 = fabric::control::PENDING_MAX as u64;

/// The owner of what a process with these credentials has.
fn owner_of(system: &System, credentials: &Credentials) -> Owner {
    let user = credentials.user;
    match () {
        () if os::peer::is_unmapped(user) => Owner::Unmapped,
        () if system.admits(credentials) => Owner::User(user),
        () => Owner::Others,
    }
}

impl LimitReport {
    /// The row of a limit that a refusal can name.
    pub(crate) fn of(
        limit: Limit,
        owner: Owner,
        used: u64,
        most: u64,
        refused: u64,
    ) -> LimitReport {
        LimitReport {
            owner: owner.to_string(),
            limit: limit.name().to_owned(),
            used,
            most,
            refused,
            setting: setting(limit, owner).unwrap_or("fixed").to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Source;

    fn credentials(user: u32) -> Credentials {
        Credentials { process: None, user, groups: Vec::new() }
    }

    #[test]
    fn own_user_and_root_have_accounts_however_many_users_are_busy() {
        let users: Vec<String> = (70_000..72_000).map(|user: u32| user.to_string()).collect();
        let text = format!("[[guest]]\nname = \"*\"\nusers = [{}]\n", users.join(", "));
        let system = System::parse(&Source::of("s.toml", &text)).unwrap();
        let mut accounts = Accounts::new(&system);
        // A system file that does not let the host's own user attach.
        accounts.own_user = Owner::User(71_999);
        let mut charges = Vec::new();
        for user in 70_000..70_000 + USERS_MAX as u32 {
            let owner = accounts.open(&system, &credentials(user), 0);
            assert_eq!(owner, Owner::User(user));
            charges.push(accounts.charge(&system, owner, Limit::Memory, 1).unwrap());
        }
        let mut owner_of = |user| accounts.open(&system, &credentials(user), 0);
        assert_eq!(owner_of(71_500), Owner::Others);
        assert_eq!(owner_of(71_999), Owner::User(71_999));
        assert_eq!(owner_of(ROOT), Owner::User(ROOT));
    }

    #[test]
    fn log_has_a_line_a_second_about_the_refused_connections_of_a_user() {
        let system = System::open();
        let mut accounts = Accounts::new(&system);
        let owner = accounts.open(&system, &Credentials::own(), 0);
        let start_ns = 5 * WARNING_NS;
        assert_eq!(accounts.warn_refused(owner, start_ns), Some(0));
        (1..1000).for_each(|at| assert_eq!(accounts.warn_refused(owner, start_ns + at), None));
        assert_eq!(accounts.warn_refused(owner, start_ns + WARNING_NS), Some(999));
        assert_eq!(accounts.warn_refused(owner, start_ns + 2 * WARNING_NS), Some(0));
    }
}
