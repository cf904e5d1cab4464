//! Pages from a host that may end and come again.

use std::time::{Duration, Instant};

use host::report::SystemReport;
use hyper::body::Bytes;
use siga::host::Observer;

use super::metrics;
use super::page::Kind::{Counter, Gauge, GaugeNs};
use super::page::{Page, labels};
use crate::output::say;
use crate::query::Subject;
use crate::socket::Socket;

/// How long pages share a report: the host has one thread, and however many ask, it makes four reports a second.
const SHARE_TIME: Duration = Duration::from_millis(250);

/// Where pages come from.
#[derive(Debug)]
pub struct Source {
    socket: Socket,
    subjects: Vec<Subject>,
    /// The connection, while the host is there.
    observer: Option<Observer>,
    /// Reports that the host did not give.
    failures: u64,
    /// Why there was no report the last time.
    why: Option<String>,
    /// Of that, what standard error has.
    said: Option<String>,
    /// The latest page, and when its report came.
    latest: Option<(Instant, Bytes)>,
}

impl Source {
    pub fn new(socket: Socket, subjects: Vec<Subject>) -> Source {
        Source {
            socket,
            subjects,
            observer: None,
            failures: 0,
            why: None,
            said: None,
            latest: None,
        }
    }

    /// A page of a report that is at most [`SHARE_TIME`] old. Waits for the host 30 s at most.
    pub fn shared(&mut self) -> Bytes {
        match &self.latest {
            Some((at, page)) if at.elapsed() < SHARE_TIME => page.clone(),
            _ => {
                let page = self.page();
                self.say_change();
                page
            }
        }
    }

    /// A page of a new report, or one that says that the host gives none. Waits for the host 30 s at most.
    pub fn page(&mut self) -> Bytes {
        let begin = Instant::now();
        let report = self.report();
        let took = begin.elapsed();
        self.failures += u64::from(report.is_err());
        let page: Bytes = self.write(report.as_ref().ok(), took).into();
        self.why = report.err();
        self.latest = Some((Instant::now(), page.clone()));
        page
    }

    /// Says on standard error that the host has gone or come, once.
    pub fn say_change(&mut self) {
        match &self.why {
            why if *why == self.said => return,
            Some(why) => say(format_args!("siga: siga_up is 0: {why}")),
            None => say("siga: siga_up is 1: the host is there again"),
        }
        self.said.clone_from(&self.why);
    }

    /// A page that says that the host is not there.
    pub fn down() -> String {
        let mut page = Page::default();
        up(&mut page, false);
        page.text()
    }

    /// Why there was no report for the latest page.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    fn report(&mut self) -> Result<SystemReport, String> {
        // The connection ends with its host. The next one may be there already.
        if let Some(observer) = self.observer.take()
            && let Ok(report) = observer.query()
        {
            self.observer = Some(observer);
            return Ok(report);
        }
        let socket = self.socket.path().map_err(|_| "there is no place to attach at".to_owned())?;
        let observer = Observer::attach(socket).map_err(|error| error.to_string())?;
        let report = observer.query().map_err(|error| error.to_string())?;
        self.observer = Some(observer);
        Ok(report)
    }

    fn write(&self, report: Option<&SystemReport>, took: Duration) -> String {
        let mut page = Page::default();
        up(&mut page, report.is_some());
        page.metric("siga_build_info", Gauge, "1, with the version of the exporter.", |samples| {
            samples.add(labels(&[("version", &env!("CARGO_PKG_VERSION"))]), 1_u64);
        });
        page.metric(
            "siga_export_report_seconds",
            GaugeNs,
            "How long the host's report took, or the attempt.",
            |samples| samples.add(String::new(), took.as_nanos() as u64),
        );
        page.metric(
            "siga_export_failures_total",
            Counter,
            "Reports that the host did not give.",
            |samples| samples.add(String::new(), self.failures),
        );
        if let Some(report) = report {
            metrics::write(&mut page, report, &self.subjects);
        }
        page.text()
    }
}

fn up(page: &mut Page, is_up: bool) {
    page.metric("siga_up", Gauge, "1 if the host has given a report, 0 if not.", |samples| {
        samples.add(String::new(), is_up);
    });
}
