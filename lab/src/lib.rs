//! The lab.
#![forbid(unsafe_code)]
pub mod case;
mod control;
pub mod factor;
pub mod fault;
pub mod library;
pub mod machine;
mod measure;
pub mod metric;
mod pattern;
pub mod plan;
pub mod record;
pub mod report;
pub mod run;
pub mod statistics;
mod transport;
pub mod trial;
pub mod worker;
pub mod workload;
