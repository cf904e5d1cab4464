//! Reports for observers: guests, paths, limits, and the buffers of a path.

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use fabric::control::{Kind, Limit, Owner, PENDING_MAX, Problem, Reply};
use fabric::name::Name;
use fabric::path::Shape;
use message::iucv::QUEUES;
use net::links;
use os::storage::{Storage, StorageOptions};

use super::{Answer, End, Host, OBSERVERS_MAX, PathRecord, Refused, State, resources, volumes};
use crate::report::{
    self, AuditReport, DriverReport, GuestReport, GuestStackReport, LanReport, LimitReport,
    LineEndReport, LineReport, LineState, PathReport, PathState, StackReport, SystemReport,
};
use crate::system::line::{LineKind, LineRule, server};

/// Bytes of a report that cost as much as a packet.
const BYTES_PER_COST: usize = 4096;

/// The limit of the connections that wait for a guest, in a report. A refusal does not name it: the guest that asks is told that the other does
/// not answer.
const WAITING: &str = "connections that wait for it";

/// What an end of a line shows.
#[derive(Clone, Copy, Debug, Default)]
struct EndShown {
    is_connected: bool,
    /// What its driver has counted, if the end says that the line is up.
    driver: Option<DriverReport>,
}

impl Host {
    /// Sends a report in a storage of its own: it may be long.
    pub(super) fn send_report(
        &mut self,
        number: u64,
        serial: u32,
        report: &impl serde::Serialize,
        cost: &mut i64,
    ) -> Answer {
        let text = serde_json::to_vec(report).map_err(|_| Problem::HostResources)?;
        *cost += (text.len() / BYTES_PER_COST) as i64;
        let options = StorageOptions::default();
        let (mut storage, descriptor) = Storage::create("siga report", text.len(), options)
            .map_err(|_| Problem::HostResources)?;
        storage.bytes_mut(0, text.len()).copy_from_slice(&text);
        let reply = Reply::Report { bytes: text.len() as u64 };
        self.send(number, serial, &reply, &[descriptor.as_fd()]);
        Ok(())
    }

    /// All guests and paths.
    pub(super) fn report(&self) -> SystemReport {
        let guests = self.guests.iter().map(|(name, guest)| {
            let credentials = &self.connections[&guest.connection].credentials;
            let rule = self.system.rule(*name);
            GuestReport {
                name: name.to_string(),
                process: credentials.process,
                user: credentials.user,
                paths: guest.paths.len(),
                paths_max: rule.map_or(0, |rule| rule.paths_max),
                storage_bytes: self.storage_bytes(*name),
                storage_bytes_max: rule.map_or(0, |rule| rule.storage_bytes_max),
            }
        });
        let paths = self.paths.iter().map(|(path, record)| {
            let side = |end: &End| match &end.board {
                Some(board) => report::side(end.guest.to_string(), &board.words, end.shape),
                None => report::SideReport { guest: end.guest.to_string(), ..Default::default() },
            };
            let state = match record.state {
                State::Pending { .. } => PathState::Pending,
                State::Joined => PathState::Joined,
                State::OneSided => PathState::OneSided,
            };
            let sides = vec![side(&record.from), side(&record.to)];
            PathReport { path: *path, kind: record.kind.to_string(), state, sides }
        });
        let stacks = self.guests.iter().filter_map(|(name, guest)| {
            let stack = StackReport::read(&guest.stack.as_ref()?.words)?;
            Some(GuestStackReport { guest: name.to_string(), stack })
        });
        let mut lans = self.lans.report();
        let mut stacks: Vec<GuestStackReport> = stacks.collect();
        self.correct(&mut lans, &mut stacks);
        let now_ns = os::processor::now_ns();
        let control_units = self.volumes.report();
        let mut limits = self.report_limits(now_ns);
        limits.extend(control_units.iter().flat_map(volumes::limits));
        SystemReport {
            now_ns,
            guests: guests.collect(),
            paths: paths.collect(),
            resources: self.resources.report(),
            lans,
            stacks,
            lines: self.system.lines.iter().map(|line| self.report_line(line)).collect(),
            adapters: self.report_adapters(),
            control_units,
            limits,
        }
    }

    /// A line, and the drivers at its ends if both show that it is up.
    fn report_line(&self, line: &LineRule) -> LineReport {
        let ends = match line.kind {
            LineKind::Iucv => self.iucv_ends(line),
            LineKind::Ctc => self.ctc_ends(line),
        };
        let is_up = ends.iter().all(|end| end.driver.is_some());
        let ends = line.ends.iter().zip(ends).map(|(end, shown)| LineEndReport {
            guest: end.guest.to_string(),
            address: end.address.to_string(),
            is_attached: self.guests.contains_key(&end.guest),
            is_connected: shown.is_connected,
            driver: shown.driver.filter(|_| is_up),
        });
        LineReport {
            name: line.name.to_string(),
            kind: line.kind.to_string(),
            mtu: line.mtu,
            state: if is_up { LineState::Up } else { LineState::Down },
            ends: ends.collect(),
        }
    }

    /// What both ends show of a line in the path between them.
    fn iucv_ends(&self, line: &LineRule) -> [EndShown; 2] {
        let name = links::gauge::name(Some(line.name));
        let driver = |end: &End| {
            let board = end.board.as_ref()?;
            // A path of another shape is nobody's line, whatever its kind says.
            let is_of_line = end.shape == Shape { outputs: QUEUES, inputs: QUEUES }
                && report::line_name(&board.words, end.shape) == name;
            is_of_line.then(|| report::driver(&board.words, end.shape))
        };
        let paths = self.paths.values().filter(|record| {
            matches!(record.state, State::Joined)
                && record.kind == Kind::IUCV
                && line.joins(record.from.guest, record.to.guest)
        });
        let shown = |record: &PathRecord| {
            line.ends.each_ref().map(|end| {
                let sides = [&record.from, &record.to];
                let driver =
                    sides.into_iter().find(|side| side.guest == end.guest).and_then(driver);
                EndShown { is_connected: driver.is_some(), driver }
            })
        };
        // The two guests may have other paths.
        let shown = paths.map(shown);
        let counted = |ends: &[EndShown; 2]| ends.iter().filter(|end| end.is_connected).count();
        shown.max_by_key(counted).unwrap_or_default()
    }

    /// The same in the paths of both ends to the guest that serves the line.
    fn ctc_ends(&self, line: &LineRule) -> [EndShown; 2] {
        let name = links::gauge::name(Some(line.name));
        line.ends.each_ref().map(|end| {
            let paths = self.paths.values().filter(|record| {
                matches!(record.state, State::Joined)
                    && record.kind == Kind::CTC
                    && (record.from.guest, record.to.guest) == (end.guest, server())
                    && record.from.shape == Shape::SIMPLE
            });
            // A guest shows the name of its line while that is up. It may be at another line, too.
            let shown = |record: &PathRecord| {
                let board = record.from.board.as_ref()?;
                let name = report::adapter_line_name(&board.words, record.from.shape);
                (name != links::gauge::name(None)).then_some(name)
            };
            let (mut is_connected, mut driver) = (false, None);
            for record in paths {
                let shown = shown(record);
                is_connected |= shown.is_none_or(|shown| shown == name);
                if shown == Some(name) {
                    let board = record.from.board.as_ref();
                    driver =
                        board.map(|board| report::adapter_driver(&board.words, record.from.shape));
                }
            }
            EndShown { is_connected, driver }
        })
    }

    /// Corrects what stacks show of themselves by what the host knows. Anybody could say that it is some machine: that guest has to be attached by the same
    /// process. And a stack that sleeps does not see that the member of its LAN has come over which a route goes.
    fn correct(&self, lans: &mut [LanReport], stacks: &mut [GuestStackReport]) {
        let is_missing = |stack: &StackReport| stack.routes.iter().any(|route| !route.is_there);
        for lan in lans.iter_mut() {
            let mut shown = lan.members.iter().filter_map(|member| member.stack.as_ref());
            let addresses: BTreeSet<String> = match shown.any(is_missing) {
                true => lan.members.iter().flat_map(|member| member.addresses.clone()).collect(),
                false => BTreeSet::new(),
            };
            for stack in lan.members.iter_mut().filter_map(|member| member.stack.as_mut()) {
                for route in stack.routes.iter_mut().filter(|route| !route.is_there) {
                    route.is_there = addresses.contains(&route.via.to_string());
                }
            }
        }
        let members = lans.iter_mut().flat_map(|lan| &mut lan.members);
        let members = members.filter_map(|member| Some((&member.guest, member.stack.as_mut()?)));
        let at_lines = stacks.iter_mut().map(|of| (&of.guest, &mut of.stack));
        for (guest, stack) in members.chain(at_lines) {
            let process = self.process(guest);
            stack.machine.take_if(|machine| process.is_none() || self.process(machine) != process);
        }
    }

    /// The process that has attached a guest, and its user. None if it is in another namespace of processes, in which it has no number here.
    fn process(&self, guest: &str) -> Option<(u32, u32)> {
        let guest = self.guests.get(&guest.parse::<Name>().ok()?)?;
        let credentials = &self.connections.get(&guest.connection)?.credentials;
        Some((credentials.process?, credentials.user))
    }

    /// All limits with their owners.
    pub(super) fn report_limits(&self, now_ns: u64) -> Vec<LimitReport> {
        let most_pending = self.most_pending();
        let mut rows = self.accounts.report(&self.system, &most_pending, now_ns);
        let (observers, most) = (self.observers() as u64, OBSERVERS_MAX as u64);
        let refused = self.observers_refused;
        rows.push(LimitReport::of(Limit::Observers, Owner::Host, observers, most, refused));
        for (name, guest) in &self.guests {
            let Some(rule) = self.system.rule(*name) else { continue };
            if guest.writes.times_put_off() > 0
                && let Some(most) = guest.writes.per_s()
            {
                let (used, waits) = (guest.writes.used(now_ns), guest.writes.times_put_off());
                let (limit, owner) = (Limit::TableWrites, Owner::Guest(*name));
                rows.push(LimitReport::of(limit, owner, used, most, waits));
            }
            let Refused { paths, storage, resources, pending, asked } = guest.refused;
            // Of those that the guest has asked for; those that wait for it have a name of their own.
            let used = most_pending.get(&Owner::Guest(*name)).copied().unwrap_or(0);
            if used > 0 || asked > 0 {
                let most = PENDING_MAX as u64 / 2;
                rows.push(LimitReport::of(Limit::Pending, Owner::Guest(*name), used, most, asked));
            }
            let owned = self.resources.managed_by(*name) as u64;
            for (limit, used, most, refused) in [
                (Limit::Paths, guest.paths.len() as u64, rule.paths_max as u64, paths),
                (Limit::Storage, self.storage_bytes(*name), rule.storage_bytes_max, storage),
                (Limit::Resources, owned, resources::RESOURCES_MAX as u64, resources),
            ] {
                rows.push(LimitReport::of(limit, Owner::Guest(*name), used, most, refused));
            }
            rows.push(LimitReport {
                limit: WAITING.to_owned(),
                ..LimitReport::of(
                    Limit::Pending,
                    Owner::Guest(*name),
                    guest.pending.len() as u64,
                    PENDING_MAX as u64,
                    pending,
                )
            });
        }
        rows
    }

    /// Every buffer of a path.
    pub(super) fn audit(&self, path: u64) -> Result<AuditReport, Problem> {
        let PathRecord { from, to, .. } = self.paths.get(&path).ok_or(Problem::NoPath)?;
        let (Some(from_board), Some(to_board)) = (&from.board, &to.board) else {
            return Err(Problem::NoPath);
        };
        let one = (from.guest.as_str(), &from_board.words);
        let other = (to.guest.as_str(), &to_board.words);
        let mut queues = report::audit_queues(one, other, from.shape);
        queues.extend(report::audit_queues(other, one, to.shape));
        Ok(AuditReport { path, queues })
    }
}
