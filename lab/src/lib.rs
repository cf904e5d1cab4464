//! The lab: measures this machine, and judges what is claimed of it. `docs/lab.md` tells how to use it, and
//! `docs/cases.md` what its files are.
//!
//! A [`case`] becomes a [`plan`] of trials; a [`trial`] is done by processes that each play a part of a
//! [`workload`] as [`worker`]s; what comes of it is a [`record`], and a [`report`] is made of records alone.

pub mod against;
pub mod binary;
pub mod case;
mod control;
pub mod definition;
pub mod factor;
pub mod fault;
pub mod interval;
pub mod library;
pub mod machine;
mod measure;
pub mod metric;
mod pattern;
pub mod peers;
mod place;
pub mod placement;
pub mod plan;
pub mod published;
pub mod quantity;
mod random;
pub mod record;
pub mod redefine;
pub mod reduce;
pub mod report;
pub mod role;
pub mod run;
pub mod state;
pub mod statistics;
pub mod store;
pub mod times;
pub mod transport;
pub mod trial;
pub mod unit;
pub mod worker;
pub mod workload;
