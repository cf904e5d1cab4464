//! Paths: asked for, authorised, joined, accounted, forgotten.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use disk::report::REPORT_BYTES;
use fabric::control::{
    Allowance, Joined, Kind, Limit, NO_DATA, Owner, PENDING_MAX, Pending, Problem, Reached, Reply,
    Request, Target, Token, UserData,
};
use fabric::name::Name;
use fabric::path::Shape;
use fabric::path::board;
use net::lan::counters::BOARD_BYTES;
use net::lan::frame::Mac;
use os::doorbell::Doorbell;
use os::foreign::Foreign;
use os::memory::shortage;
use os::storage::{BorrowError, Borrowed, STORAGE_GRAIN_BYTES};
use os::words::LentWords;
use tracing::info;

use super::lans::{Change, JoinWish, borrow_counters};
use super::{
    Answer, Board, End, Host, PATH_BYTES, PathRecord, Refused, ReportShown, State, socket_name,
};

/// What a guest sends that asks for a path.
struct Wish {
    target: Target,
    kind: Kind,
    flags: u16,
    data: UserData,
}

impl Host {
    /// Does what a guest asks about paths and resources.
    pub(super) fn broker(
        &mut self,
        number: u64,
        serial: u32,
        name: Name,
        request: Request,
        descriptors: Vec<Foreign>,
    ) -> Answer {
        match request {
            Request::Connect { target, kind, flags, data, shape, allowance } => {
                let end = End { guest: name, shape, allowance, board: None };
                let wish = Wish { target, kind, flags, data };
                self.connect(serial, end, wish, descriptors)
            }
            Request::Cancel { connect } => {
                let path = self.cancel(name, connect)?;
                self.send(number, serial, &Reply::Done { path }, &[]);
                Ok(())
            }
            Request::Accept { path, flags, data, allowance } => {
                self.accept_path(serial, name, path, (flags, data), allowance, descriptors)
            }
            Request::Refuse { path, data } => {
                self.pending_for(name, path)?;
                self.fail_pending(path, Problem::Refused, data);
                self.send(number, serial, &Reply::Done { path }, &[]);
                Ok(())
            }
            Request::Ended { path } => {
                // The other side may have been first: that is no fault, and no answer is sent.
                let record = self.paths.get(&path);
                let is_pending = record.is_some_and(PathRecord::is_pending);
                if self.guests[&name].paths.contains(&path) && !is_pending {
                    self.end_side(name, path);
                }
                Ok(())
            }
            Request::Rejoin { token, peer, kind, shape, allowance } => {
                let end = End { guest: name, shape, allowance, board: None };
                let path = self.rejoin(token, kind, end, peer, descriptors)?;
                self.send(number, serial, &Reply::Done { path }, &[]);
                Ok(())
            }
            Request::Identify { resource, scope } => {
                self.identify(name, resource, scope)?;
                self.send(number, serial, &Reply::Done { path: 0 }, &[]);
                Ok(())
            }
            Request::Revoke { resource, scope } => {
                self.revoke(name, resource, scope)?;
                self.send(number, serial, &Reply::Done { path: 0 }, &[]);
                Ok(())
            }
            Request::JoinLan { lan, mac, address, captures, routes } => {
                let wish = JoinWish { lan, mac: Mac(mac), address, captures, routes };
                self.charge_member(name)?;
                self.count_table_write(name);
                let answer = self.join_lan((number, serial), name, wish, descriptors);
                self.settle_member(name);
                answer
            }
            Request::ShowVolumes => {
                let charges = self.charge_mapping(name, REPORT_BYTES)?;
                self.show_volumes((number, serial), name, descriptors)?;
                if let Some(guest) = self.guests.get_mut(&name) {
                    guest.shown = Some(charges);
                }
                Ok(())
            }
            Request::ShowStack => {
                let [lent] = <[Foreign; 1]>::try_from(descriptors).map_err(|_| Problem::Storage)?;
                let charges = self.charge_mapping(name, BOARD_BYTES)?;
                let words = borrow_counters(&lent)?;
                if let Some(guest) = self.guests.get_mut(&name) {
                    guest.stack = Some(ReportShown { words, _charges: charges });
                }
                self.send(number, serial, &Reply::Done { path: 0 }, &[]);
                Ok(())
            }
            Request::ShowAdapter => self.show_adapter((number, serial), name, descriptors),
            Request::LeaveLan => {
                self.count_table_write(name);
                let answer = self.change_membership((number, serial), name, Change::Leave);
                self.settle_member(name);
                answer
            }
            Request::Register { address } => {
                self.count_table_write(name);
                self.change_membership((number, serial), name, Change::Register(address))
            }
            Request::Unregister { address } => {
                self.count_table_write(name);
                self.change_membership((number, serial), name, Change::Unregister(address))
            }
            Request::TakeOrders => {
                self.note_machine(number, serial, name);
                Ok(())
            }
            Request::OrderDone { order, placed } => {
                self.order_done(name, order, placed);
                Ok(())
            }
            Request::Attach { .. }
            | Request::Observe
            | Request::Query
            | Request::Audit { .. }
            | Request::PlaceDriver { .. } => Err(Problem::Request),
        }
    }

    /// A guest has the address table of its LAN changed, or tries to.
    fn count_table_write(&mut self, name: Name) {
        if let Some(owner) = self.owner(name) {
            self.accounts.count_table_write(owner, self.now_ns);
        }
        if let Some(guest) = self.guests.get_mut(&name) {
            guest.writes.take(1, self.now_ns);
        }
    }

    /// Charges the counters of a member of a LAN, unless the guest is one.
    fn charge_member(&mut self, name: Name) -> Answer {
        if self.guests.get(&name).is_some_and(|guest| guest.member.is_none()) {
            let charges = self.charge_mapping(name, BOARD_BYTES)?;
            self.guests.get_mut(&name).expect("it is being answered").member = Some(charges);
        }
        Ok(())
    }

    /// Gives the charge back if the guest is a member no longer.
    fn settle_member(&mut self, name: Name) {
        let is_member = self.lans.share(name, name);
        if let Some(guest) = self.guests.get_mut(&name).filter(|_| !is_member) {
            guest.member = None;
        }
    }

    fn connect(
        &mut self,
        connect: u32,
        mut from: End,
        wish: Wish,
        descriptors: Vec<Foreign>,
    ) -> Answer {
        let Wish { target, kind, flags, data } = wish;
        let [board, lines] = <[Foreign; 2]>::try_from(descriptors).map_err(|_| Problem::Storage)?;
        let (target, resource) = match target {
            Target::Guest(name) => (name, None),
            Target::Resource(name) => {
                let manager = self.resources.manager(name).ok_or(Problem::NoResource)?;
                (manager, Some(name))
            }
        };
        // Members of a LAN reach each other for frames, and for nothing else unless the system file says so.
        let may_connect = match kind {
            Kind::LAN => self.lans.share(from.guest, target),
            Kind::INTRODUCED => self.system.may_be_introduced(from.guest, target),
            Kind::CAPTURE if !self.system.may_capture_at(from.guest, target) => {
                return Err(Problem::CaptureRefused);
            }
            Kind::CAPTURE => true,
            _ => self.system.may_connect(from.guest, target),
        };
        if !may_connect {
            return Err(Problem::NotAuthorised);
        }
        if kind == Kind::INTRODUCED && !self.may_be_introduced_now(from.guest, target) {
            return Err(Problem::NotAttached);
        }
        let target_guest = self.guests.get(&target).ok_or(Problem::NotAttached)?;
        if target_guest.pending.len() >= PENDING_MAX {
            self.count_refusal(target, |refused| &mut refused.pending);
            return Err(Problem::NotAnswering);
        }
        self.check_pending(from.guest, target)?;
        self.check_path_limit(from.guest, Problem::OwnPathLimit)?;
        self.check_path_limit(target, Problem::TargetPathLimit)?;
        from.allowance = self.grant(from.guest, from.allowance)?;
        from.board = Some(self.borrow_board(from.guest, &board, from.shape)?);
        let owner = self.owner(from.guest).ok_or(Problem::NotAttached)?;
        // The board and the lines, until they are passed on.
        let charge = self.accounts.charge(&self.system, owner, Limit::Descriptors, 2)?;
        let shape = from.shape.mirrored();
        let to = End::absent(target, shape);
        let path = self.next_path;
        let event = Pending { path, from: from.guest, resource, kind, flags, data, shape };
        let token = Token(random_token().map_err(|_| Problem::HostResources)?);
        let state = State::Pending { connect, board, lines, event, _charge: charge };
        let asks = from.guest;
        self.add_path(PathRecord { token, kind, state, from, to });
        if let Some(guest) = self.guests.get_mut(&asks) {
            guest.asked.insert((connect, path));
        }
        let guest = self.guests.get_mut(&target).expect("looked up above");
        guest.pending.insert(path);
        guest.unannounced.push_back(path);
        self.announce(target);
        Ok(())
    }

    /// Notifies a guest of its pending paths, as far as it reads its notices. It is spared while it is
    /// behind: what is pending may have to be withdrawn too, and nothing that others do may fill its socket,
    /// which would be the end of it.
    pub(super) fn announce(&mut self, name: Name) {
        while let Some(guest) = self.guests.get_mut(&name)
            && !guest.unannounced.is_empty()
        {
            let connection = guest.connection;
            let Some(known) = self.connections.get(&connection) else { return };
            if !known.has_room() {
                if self.behind.insert(name) {
                    // If there is room by now, that is returned by the next wait.
                    let _ =
                        self.poller.wait_for_room(&known.packets, socket_name(connection), true);
                }
                return;
            }
            let path = guest.unannounced.pop_front().expect("there is one");
            // Unless it was accepted unseen.
            if let Some(PathRecord { state: State::Pending { event, .. }, .. }) =
                self.paths.get(&path)
            {
                let event = Reply::Pending(*event);
                self.send(connection, 0, &event, &[]);
            }
        }
    }

    /// Takes back a connection that its guest does not want to wait for any longer.
    fn cancel(&mut self, name: Name, serial: u32) -> Result<u64, Problem> {
        let mut asked = self.guests[&name].asked.range((serial, 0)..=(serial, u64::MAX));
        let (_, path) = *asked.next().ok_or(Problem::NoPath)?;
        self.withdraw(path);
        Ok(path)
    }

    /// Takes a pending path away from the guest that should accept it.
    fn withdraw(&mut self, path: u64) {
        let Some(target) =
            self.paths.get(&path).and_then(|record| self.guests.get(&record.to.guest))
        else {
            return;
        };
        let connection = target.connection;
        let is_announced = !target.unannounced.contains(&path);
        self.remove_path(path);
        if is_announced {
            self.send(connection, 0, &Reply::Withdrawn { path }, &[]);
        }
    }

    fn accept_path(
        &mut self,
        serial: u32,
        name: Name,
        path: u64,
        (flags, data): (u16, UserData),
        allowance: Allowance,
        descriptors: Vec<Foreign>,
    ) -> Answer {
        self.pending_for(name, path)?;
        let [board, lines] = <[Foreign; 2]>::try_from(descriptors).map_err(|_| Problem::Storage)?;
        let allowance = self.grant(name, allowance)?;
        let shape = self.paths[&path].to.shape;
        let words = self.borrow_board(name, &board, shape)?;
        let ends = self.paths[&path].kind.doorbells(shape);
        let bells = (0..ends).map(|_| Doorbell::ends()).collect::<Result<Vec<_>, _>>();
        let (ours, theirs): (Vec<_>, Vec<_>) =
            bells.map_err(|_| Problem::HostResources)?.into_iter().unzip();

        let record = self.paths.get_mut(&path).expect("pending");
        record.to.allowance = allowance;
        record.to.board = Some(words);
        let State::Pending { connect, board: from_board, lines: from_lines, .. } =
            std::mem::replace(&mut record.state, State::Joined)
        else {
            unreachable!("pending, as seen above")
        };
        let for_from = Joined {
            path,
            token: record.token,
            peer: record.to.guest,
            flags,
            data,
            shape: record.from.shape,
            ours: record.from.allowance,
            theirs: record.to.allowance,
        };
        let for_to = Joined {
            peer: record.from.guest,
            flags: 0,
            data: NO_DATA,
            shape: record.to.shape,
            ours: record.to.allowance,
            theirs: record.from.allowance,
            ..for_from
        };
        info!(path, from = %for_to.peer, to = %name, "joined");
        let is_to_machine = record.kind == Kind::TCPIP;
        let from = self.guests.get_mut(&for_to.peer).expect("its paths end with it");
        from.asked.remove(&(connect, path));
        let from_connection = from.connection;
        if is_to_machine {
            self.note_client(path, for_to.peer, name);
        }
        let guest = self.guests.get_mut(&name).expect("it is being answered");
        guest.pending.remove(&path);
        let to_connection = guest.connection;
        // The acceptor first: by the time the other side uses the path, it is there.
        let mut passed = vec![from_board.as_fd(), from_lines.as_fd()];
        passed.extend(ours.iter().map(AsFd::as_fd));
        if !self.send(to_connection, serial, &Reply::Joined(for_to), &passed) {
            self.remove_path(path);
            let failed = Reply::Failed { problem: Problem::HostResources, data: NO_DATA };
            self.send(from_connection, connect, &failed, &[]);
            return Ok(());
        }
        let mut passed = vec![board.as_fd(), lines.as_fd()];
        passed.extend(theirs.iter().map(AsFd::as_fd));
        if !self.send(from_connection, connect, &Reply::Joined(for_from), &passed) {
            // The other ends of the acceptor's doorbells close: it hears that its peer is gone.
            self.end_side(for_to.peer, path);
        }
        Ok(())
    }

    /// Takes in a side of a path that another host has made, or that its guest had left.
    fn rejoin(
        &mut self,
        token: Token,
        kind: Kind,
        mut end: End,
        peer: Name,
        descriptors: Vec<Foreign>,
    ) -> Result<u64, Problem> {
        let [board] = <[Foreign; 1]>::try_from(descriptors).map_err(|_| Problem::Storage)?;
        // Either may have asked for the path. Guests rejoin before they are members of a LAN, or clients of a machine, again.
        let (own, system) = (end.guest, &self.system);
        let may_have = match kind {
            Kind::LAN => system.may_share_lan(own, peer),
            Kind::INTRODUCED => {
                system.may_be_introduced(own, peer) || system.may_be_introduced(peer, own)
            }
            Kind::CAPTURE => system.may_capture_at(own, peer) || system.may_capture_at(peer, own),
            _ => system.may_connect(own, peer) || system.may_connect(peer, own),
        };
        if !may_have {
            return Err(Problem::NotAuthorised);
        }
        self.check_path_limit(end.guest, Problem::OwnPathLimit)?;
        end.allowance = self.grant(end.guest, end.allowance)?;
        end.board = Some(self.borrow_board(end.guest, &board, end.shape)?);
        let waits = |record: &PathRecord| {
            matches!(record.state, State::OneSided)
                && record.token == token
                && record.kind == kind
                && record.from.guest == peer
                && record.to.guest == end.guest
                && record.to.shape == end.shape
        };
        let half = self.paths.iter().find_map(|(path, record)| waits(record).then_some(*path));
        match half {
            Some(path) => {
                let record = self.paths.get_mut(&path).expect("found above");
                record.to = end;
                record.state = State::Joined;
                let name = record.to.guest;
                // Who had asked for it before is not known any more: whoever may have.
                for (client, machine) in [(name, peer), (peer, name)] {
                    if kind == Kind::TCPIP && self.system.may_connect(client, machine) {
                        self.note_client(path, client, machine);
                    }
                }
                self.guests.get_mut(&name).expect("it is being answered").paths.insert(path);
                info!(path, from = %peer, to = %name, "joined again");
                Ok(path)
            }
            None => {
                let to = End::absent(peer, end.shape.mirrored());
                let state = State::OneSided;
                Ok(self.add_path(PathRecord { token, kind, state, from: end, to }))
            }
        }
    }

    /// Whether `path` waits to be accepted by this guest.
    fn pending_for(&self, name: Name, path: u64) -> Answer {
        let record =
            self.paths.get(&path).filter(|record| record.to.guest == name && record.is_pending());
        record.map(drop).ok_or(Problem::NoPath)
    }

    /// Checks that a guest, and its user, leave others something of the connections that may wait for a target.
    fn check_pending(&mut self, from: Name, target: Name) -> Answer {
        let owner = self.owner(from).ok_or(Problem::NotAttached)?;
        let target = self.guests.get(&target).ok_or(Problem::NotAttached)?;
        let (all, mut of_guest, mut of_owner) = (target.pending.len() as u64, 0, 0);
        for requester in target.pending.iter().map(|path| self.paths[path].from.guest) {
            of_guest += u64::from(requester == from);
            of_owner += u64::from(self.owner(requester) == Some(owner));
        }
        let most = PENDING_MAX as u64;
        let of_user = self.system.user_limit(owner, Limit::Pending);
        let of_user = of_user.unwrap_or_else(|| self.accounts.share(owner, most, all - of_owner));
        let half = most.saturating_sub(all - of_guest) / 2;
        for (owner, used, most) in
            [(owner, of_owner, of_user), (Owner::Guest(from), of_guest, half)]
        {
            if used >= most {
                match owner {
                    Owner::Guest(_) => self.count_refusal(from, |refused| &mut refused.asked),
                    _ => self.accounts.refuse_pending(owner),
                }
                return Err(Problem::Limit(Reached { limit: Limit::Pending, owner, most }));
            }
        }
        Ok(())
    }

    /// Connections of each user, and of each guest that asks, that wait for one guest: at the guest where they are most.
    pub(super) fn most_pending(&self) -> BTreeMap<Owner, u64> {
        let mut most: BTreeMap<Owner, u64> = BTreeMap::new();
        for target in self.guests.values() {
            let mut at_target: BTreeMap<Owner, u64> = BTreeMap::new();
            for from in target.pending.iter().map(|path| self.paths[path].from.guest) {
                for owner in [self.owner(from), Some(Owner::Guest(from))].into_iter().flatten() {
                    *at_target.entry(owner).or_default() += 1;
                }
            }
            for (owner, waiting) in at_target {
                let most = most.entry(owner).or_default();
                *most = waiting.max(*most);
            }
        }
        most
    }

    /// Counts that a guest has reached a limit of its own.
    pub(super) fn count_refusal(&mut self, name: Name, which: fn(&mut Refused) -> &mut u64) {
        if let Some(guest) = self.guests.get_mut(&name) {
            *which(&mut guest.refused) += 1;
        }
    }

    /// Notes that a guest has one joined path more to a machine.
    fn note_client(&mut self, path: u64, client: Name, machine: Name) {
        if let Some(guest) = self.guests.get_mut(&client) {
            guest.machines.entry(machine).or_default().insert(path);
        }
    }

    /// Notes that a path between two is joined no longer.
    fn forget_client(&mut self, path: u64, [one, other]: [Name; 2]) {
        for (client, machine) in [(one, other), (other, one)] {
            if let Some(guest) = self.guests.get_mut(&client)
                && let Some(paths) = guest.machines.get_mut(&machine)
            {
                paths.remove(&path);
                if paths.is_empty() {
                    guest.machines.remove(&machine);
                }
            }
        }
    }

    /// Returns true if two guests are clients, at this time, of a machine that may introduce them, or may connect to each other anyway. Only the machine
    /// knows whether it has introduced them: the guest that is asked was told so.
    fn may_be_introduced_now(&self, one: Name, other: Name) -> bool {
        let is_client = |name: Name, machine: Name| {
            self.guests.get(&name).is_some_and(|guest| guest.machines.contains_key(&machine))
        };
        let mut machines = self.system.introducers(one, other);
        self.system.may_connect(one, other)
            || machines.any(|machine| is_client(one, machine) && is_client(other, machine))
    }

    fn check_path_limit(&mut self, name: Name, problem: Problem) -> Answer {
        let paths = self.guests.get(&name).map_or(0, |guest| guest.paths.len());
        let most = self.system.rule(name).map_or(0, |rule| rule.paths_max);
        if paths < most {
            return Ok(());
        }
        self.count_refusal(name, |refused| &mut refused.paths);
        Err(problem)
    }

    /// What a guest is granted for a path when it asks for this.
    fn grant(&mut self, name: Name, asked: Allowance) -> Result<Allowance, Problem> {
        let rule = self.system.rule(name).ok_or(Problem::NotAuthorised)?;
        let left = rule.storage_bytes_max.saturating_sub(self.storage_bytes(name));
        let granted = Allowance { messages: asked.messages.min(rule.messages_max), ..asked };
        if asked.storage_bytes > left {
            self.count_refusal(name, |refused| &mut refused.storage);
            return Err(Problem::StorageLimit);
        }
        Ok(granted)
    }

    /// Maps a board of a guest's, to watch it.
    fn borrow_board(
        &mut self,
        name: Name,
        descriptor: &Foreign,
        shape: Shape,
    ) -> Result<Board, Problem> {
        let bytes = (shape.board_words() * 8).next_multiple_of(STORAGE_GRAIN_BYTES);
        let charges = self.charge_mapping(name, bytes + PATH_BYTES as usize)?;
        let borrowed =
            Borrowed::borrow(descriptor, bytes..=bytes).map_err(|error| not_borrowed(&error))?;
        let words = LentWords::borrow(borrowed);
        if !board::is_established(&words, shape) {
            return Err(Problem::Version);
        }
        Ok(Board { words, _charges: charges })
    }

    /// Data storage that all paths of a guest may lend.
    pub(super) fn storage_bytes(&self, name: Name) -> u64 {
        let Some(guest) = self.guests.get(&name) else { return 0 };
        let of = |end: &End| if end.guest == name { end.allowance.storage_bytes } else { 0 };
        guest.paths.iter().map(|path| &self.paths[path]).fold(0, |sum, record| {
            sum.saturating_add(of(&record.from)).saturating_add(of(&record.to))
        })
    }

    fn add_path(&mut self, record: PathRecord) -> u64 {
        let path = self.next_path;
        self.next_path += 1;
        let is_one_sided = matches!(record.state, State::OneSided);
        let both = [(record.from.guest, true), (record.to.guest, !is_one_sided)];
        for (name, _) in both.into_iter().filter(|(_, counts)| *counts) {
            if let Some(guest) = self.guests.get_mut(&name) {
                guest.paths.insert(path);
            }
        }
        self.paths.insert(path, record);
        path
    }

    /// Takes a path out of a guest's account. The other side has it until it ends it too: a false report of
    /// an end cannot make another guest exceed its limits.
    fn end_side(&mut self, name: Name, path: u64) {
        let Some(record) = self.paths.get_mut(&path) else { return };
        if !matches!(record.state, State::Joined) {
            return self.remove_path(path);
        }
        if record.from.guest == name {
            std::mem::swap(&mut record.from, &mut record.to);
        }
        record.to = End::absent(name, record.to.shape);
        record.state = State::OneSided;
        let other = record.from.guest;
        self.forget_client(path, [name, other]);
        // A path of a guest with itself has two sides to end.
        if other != name
            && let Some(guest) = self.guests.get_mut(&name)
        {
            guest.paths.remove(&path);
        }
    }

    /// Forgets a path. Its two sides know without us.
    fn remove_path(&mut self, path: u64) {
        let Some(record) = self.paths.remove(&path) else { return };
        self.forget_client(path, [record.from.guest, record.to.guest]);
        if let State::Pending { connect, .. } = record.state
            && let Some(guest) = self.guests.get_mut(&record.from.guest)
        {
            guest.asked.remove(&(connect, path));
        }
        for name in [record.from.guest, record.to.guest] {
            if let Some(guest) = self.guests.get_mut(&name) {
                guest.paths.remove(&path);
            }
        }
        if record.is_pending()
            && let Some(target) = self.guests.get_mut(&record.to.guest)
        {
            target.pending.remove(&path);
            target.unannounced.retain(|other| *other != path);
        }
    }

    /// Ends a pending connection and notifies the side that asked for it.
    fn fail_pending(&mut self, path: u64, problem: Problem, data: UserData) {
        let Some(record) = self.paths.get(&path) else { return };
        let State::Pending { connect, .. } = record.state else { return };
        let from = self.guests.get(&record.from.guest).map(|guest| guest.connection);
        self.remove_path(path);
        if let Some(connection) = from {
            self.send(connection, connect, &Reply::Failed { problem, data }, &[]);
        }
    }

    /// Forgets all paths of a guest that is going.
    pub(super) fn forget_paths(&mut self, name: Name) {
        let Some(guest) = self.guests.get_mut(&name) else { return };
        for path in std::mem::take(&mut guest.paths) {
            let Some(record) = self.paths.get(&path) else { continue };
            let (from, target) = (record.from.guest, record.to.guest);
            if !record.is_pending() {
                self.end_side(name, path);
                if from == target {
                    self.remove_path(path);
                }
            } else if target == name {
                self.fail_pending(path, Problem::NotAttached, NO_DATA);
            } else {
                self.withdraw(path);
            }
        }
    }
}

/// Whose fault it is that a storage cannot be mapped: the host may lack memory, or have as many mappings as the
/// kernel lets it have.
pub(super) fn not_borrowed(error: &BorrowError) -> Problem {
    match error {
        BorrowError::Os(error) if shortage(error).is_some() => Problem::HostResources,
        _ => Problem::Storage,
    }
}

fn random_token() -> std::io::Result<[u8; 16]> {
    let mut token = [0; 16];
    os::random::fill(&mut token)?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn want_of_memory_for_a_board_is_the_hosts_own() {
        const ENOMEM: i32 = 12;
        const EACCES: i32 = 13;
        let os = |code| BorrowError::Os(io::Error::from_raw_os_error(code));
        assert_eq!(not_borrowed(&os(ENOMEM)), Problem::HostResources);
        for fault in [BorrowError::Kind, BorrowError::Seals(0), os(EACCES)] {
            assert_eq!(not_borrowed(&fault), Problem::Storage);
        }
    }
}
