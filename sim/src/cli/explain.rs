//! `explain`: the chain with a scenario's numbers. `schema`: what a scenario file may hold.

use super::{BAD_INPUT, jobs, only, say};
use sluicegate_sim::explain::Explained;
use sluicegate_sim::scenario;
use std::path::PathBuf;

/// What `explain` is told.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Scenario files, or folders of them.
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Explain only the variant of this name.
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,
    /// Take the limits that a server's configuration file says, instead of the scenario's.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON document per line and story.
    #[arg(long)]
    json: bool,
}

/// What `schema` is told.
#[derive(clap::Args)]
pub(crate) struct SchemaOptions {
    /// Print it on one line; it is JSON either way.
    #[arg(long)]
    json: bool,
}

/// Explains every story.
pub(crate) fn explain(options: &Options) -> u8 {
    let asked = jobs(&options.paths, options.config.as_deref()).and_then(|mut jobs| {
        if let Some(variant) = &options.variant {
            only(&mut jobs, variant)?;
        }
        Ok(jobs)
    });
    let jobs = match asked {
        Ok(jobs) => jobs,
        Err(message) => {
            eprintln!("error: {message}");
            return BAD_INPUT;
        }
    };
    for job in &jobs {
        let explained = Explained(&job.story);
        if options.json {
            say(explained.json());
        } else {
            say(&explained);
        }
    }
    0
}

/// Prints the schema.
pub(crate) fn schema(options: &SchemaOptions) -> u8 {
    let schema = scenario::schema();
    if options.json {
        say(&schema);
    } else {
        say(format_args!("{schema:#}"));
    }
    0
}
