//! Aeron's media driver: it makes the logs that messages go through, and moves on how far a publisher may
//! write.
//!
//! A process of its own, as the third party of a trial, in the trial's directory. The messages do not go
//! through the driver, but no message goes far without the driver: its processor time is part of what a
//! message costs.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

use lab::worker::{Control, Doing, Fault, Order, Report};
use rusteron_media_driver::bindings::aeron_threading_mode_t;
use rusteron_media_driver::{AeronDriver, AeronDriverContext};

/// The driver's only thread sleeps so long between two looks, in nanoseconds. Within that time a publisher
/// may write half a term. (Two processors are taken by publisher and subscriber: a driver that spins, or
/// backs off from spinning as is usual, takes its time from one of them.)
const SLEEP_NS: u64 = 100_000;

/// Runs a media driver until the lab says that the guests are done.
pub fn attend(order: &Order, control: &mut Control) -> Result<Report, Fault> {
    let driver = start(order).doing("start Aeron's media driver")?;
    let mut report = lab::worker::attend(control)?;
    let counted = [("media_driver_cpu_ns", report.cpu_ns()), ("media_driver_sleep_ns", SLEEP_NS)];
    report.counters.extend(counted.map(|(name, count)| (name.to_owned(), count)));
    drop(driver);
    Ok(report)
}

/// Where the driver and its clients meet.
pub fn directory(order: &Order) -> CString {
    let directory = order.socket.as_ref().expect("the lab gives Aeron's trials a place");
    CString::new(directory.as_os_str().as_bytes()).expect("no path has a zero byte")
}

fn start(order: &Order) -> Result<AeronDriver, rusteron_media_driver::AeronCError> {
    let context = AeronDriverContext::new()?;
    context.set_dir(&directory(order))?;
    context.set_threading_mode(aeron_threading_mode_t::AERON_THREADING_MODE_SHARED)?;
    let sleep = CString::new(format!("{SLEEP_NS}ns")).expect("no zero byte");
    context.set_shared_idle_strategy_init_args(&sleep)?;
    context.set_shared_idle_strategy(c"sleep-ns")?;
    let driver = AeronDriver::new(&context)?;
    driver.start(false)?;
    Ok(driver)
}
