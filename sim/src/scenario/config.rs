//! A server's configuration file, of which stories take the limits.

use super::bad::{BadInput, Source};
use super::file::Table;
use super::limit::{BadLimit, set_limit};
use crate::amount::Text;
use serde::Deserialize;
use sluicegate_core::Limits;
use toml::Value;

/// The limits of a server's configuration.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The file as it was named.
    pub file: String,
    /// Its other tables: they say nothing about the broker.
    pub left_out: Vec<&'static str>,
    /// Names and values; each has been set once and was good.
    limits: Vec<(String, String)>,
}

/// What is in a file for `sluicegate-ws` or `sluicegate-quic`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    limits: Table<Text>,
    server: Option<Value>,
    app: Option<Value>,
    tenant: Option<Value>,
    tls: Option<Value>,
}

impl ServerConfig {
    /// Reads a file such as the servers read, and `config print` writes. `file` names it in errors.
    ///
    /// # Errors
    /// Name the line, the key, the value and what it could be.
    pub fn read(file: &str, text: &str) -> Result<Self, BadInput> {
        let source = Source { file, text };
        let parsed: File = toml::from_str(text).map_err(|error| source.bad_toml(&error))?;
        let mut limits = Vec::new();
        for (name, value) in &parsed.limits {
            let (key, text) = (name.get_ref(), &value.get_ref().0);
            if key == "shards" {
                let message = "`shards`: a story says itself how many there are: take it out";
                return Err(source.bad(&name.span(), message));
            }
            set_limit(&mut Limits::default(), key, text).map_err(|wrong| match wrong {
                BadLimit::Name(message) => source.bad(&name.span(), message),
                BadLimit::Value(message) => source.bad(&value.span(), message),
            })?;
            limits.push((key.clone(), text.clone()));
        }
        if limits.is_empty() {
            let message = "there is no limit below [limits]: write some there, or name what \
                           `config print` of the server writes";
            return Err(source.bad_file(message));
        }
        let others = [
            ("[server]", parsed.server),
            ("[[app]]", parsed.app),
            ("[[tenant]]", parsed.tenant),
            ("[tls]", parsed.tls),
        ];
        let left_out = others.into_iter().filter(|(_, table)| table.is_some());
        let left_out = left_out.map(|(name, _)| name).collect();
        Ok(Self { file: file.to_owned(), left_out, limits })
    }

    /// Puts its limits in the place of a story's own.
    pub(super) fn put(&self, to: &mut Limits) {
        for (name, value) in &self.limits {
            set_limit(to, name, value).expect("it was good before");
        }
    }
}
