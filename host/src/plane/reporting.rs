//! Reports for observers: guests, paths, limits, and the buffers of a path.

use std::os::fd::AsFd;

use fabric::control::{Kind, Limit, Owner, PENDING_MAX, Problem, Reply};
use fabric::path::Shape;
use message::iucv::QUEUES;
use net::links;
use os::storage::{Storage, StorageOptions};

use super::{Answer, End, Host, OBSERVERS_MAX, PathRecord, Refused, State, resources, volumes};
use crate::report::{
    self, AuditReport, DriverReport, GuestReport, GuestStackReport, LimitReport, LineEndReport,
    LineReport, LineState, PathReport, PathState, StackReport, SystemReport,
};
use crate::system::line::{LineKind, LineRule, server};

/// Bytes of a report that cost as much as a packet.
const BYTES_PER_COST: usize = 4096;

/// The limit of the connections that wait for a guest, in a report. A refusal does not name it: the guest that asks is told that the other does
/// not answer.
const WAITING: &str = "connections that wait for it";

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
        let now_ns = os::processor::now_ns();
        let control_units = self.volumes.report();
        let mut limits = self.report_limits(now_ns);
        limits.extend(control_units.iter().flat_map(volumes::limits));
        SystemReport {
            now_ns,
            guests: guests.collect(),
            paths: paths.collect(),
            resources: self.resources.report(),
            lans: self.lans.report(),
            stacks: stacks.collect(),
            lines: self.system.lines.iter().map(|line| self.report_line(line)).collect(),
            control_units,
            limits,
        }
    }

    /// A line, and the drivers at its ends if both show that it is up.
    fn report_line(&self, line: &LineRule) -> LineReport {
        let drivers = match line.kind {
            LineKind::Iucv => self.iucv_drivers(line),
            LineKind::Ctc => self.ctc_drivers(line),
        };
        let ends = line.ends.iter().enumerate().map(|(at, end)| LineEndReport {
            guest: end.guest.to_string(),
            address: end.address.to_string(),
            is_attached: self.guests.contains_key(&end.guest),
            driver: drivers.map(|drivers| drivers[at]),
        });
        LineReport {
            name: line.name.to_string(),
            kind: line.kind.to_string(),
            mtu: line.mtu,
            state: if drivers.is_some() { LineState::Up } else { LineState::Down },
            ends: ends.collect(),
        }
    }

    /// What the drivers at both ends have counted, over the path whose both sides say that they serve this line.
    fn iucv_drivers(&self, line: &LineRule) -> Option<[DriverReport; 2]> {
        let name = links::gauge::name(Some(line.name));
        let is_of_line = |end: &End| {
            let board = end.board.as_ref();
            // A path of another shape is nobody's line, whatever its kind says.
            end.shape == Shape { outputs: QUEUES, inputs: QUEUES }
                && board.is_some_and(|board| report::line_name(&board.words, end.shape) == name)
        };
        let path = self.paths.values().find(|record| {
            matches!(record.state, State::Joined)
                && record.kind == Kind::IUCV
                && line.joins(record.from.guest, record.to.guest)
                && [&record.from, &record.to].into_iter().all(is_of_line)
        })?;
        let driver = |guest| {
            let side = [&path.from, &path.to].into_iter().find(|side| side.guest == guest)?;
            Some(report::driver(&side.board.as_ref()?.words, side.shape))
        };
        Some([driver(line.ends[0].guest)?, driver(line.ends[1].guest)?])
    }

    /// The same over the paths of both ends to the guest that serves the line.
    fn ctc_drivers(&self, line: &LineRule) -> Option<[DriverReport; 2]> {
        let name = links::gauge::name(Some(line.name));
        let driver = |guest| {
            let path = self.paths.values().find(|record| {
                let End { guest: from, shape, board, .. } = &record.from;
                matches!(record.state, State::Joined)
                    && record.kind == Kind::CTC
                    && (*from, record.to.guest) == (guest, server())
                    && *shape == Shape::SIMPLE
                    && board.as_ref().is_some_and(|board| {
                        report::adapter_line_name(&board.words, *shape) == name
                    })
            })?;
            let End { shape, board, .. } = &path.from;
            Some(report::adapter_driver(&board.as_ref()?.words, *shape))
        };
        Some([driver(line.ends[0].guest)?, driver(line.ends[1].guest)?])
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
