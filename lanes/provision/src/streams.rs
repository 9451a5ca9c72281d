//! The streams and buckets of a space: what they are, and making them.
//!
//! Owns their configuration. It never alters and never deletes one that is there: what differs is an error that names
//! the difference. It must not know accounts or credentials.

mod compare;
mod layout;

pub use layout::{Placement, Retention, SpaceSettings};

use async_nats::jetstream::{self, ErrorCode, context::CreateStreamErrorKind, stream};
use bytes::Bytes;
use lanekeeper_wire::{Bucket, CHANNEL_DEFAULTS_KEY, ChannelDefaults, Space};

/// Why the streams of a space could not be made.
#[derive(Debug, thiserror::Error)]
pub enum StreamFault {
    /// A setting makes no sense.
    #[error("setting {setting} is {found}; it must be {rule}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// Its value.
        found: String,
        /// What it may be.
        rule: &'static str,
    },
    /// A stream is there with another configuration. It was left as it is.
    #[error("stream {stream} exists with {field} = {found} where {wanted} is wanted; it was not altered")]
    Differs {
        /// The stream.
        stream: String,
        /// The field of its configuration.
        field: &'static str,
        /// The value wanted.
        wanted: String,
        /// The value found.
        found: String,
    },
    /// The broker took a stream and dropped a part of its configuration.
    #[error("the broker made stream {stream} with {field} = {found} though {wanted} was asked for; it is too old")]
    Dropped {
        /// The stream.
        stream: String,
        /// The field of its configuration.
        field: &'static str,
        /// The value asked for.
        wanted: String,
        /// The value given.
        found: String,
    },
    /// The broker refused.
    #[error("cannot {action} stream {stream}: {source}")]
    Broker {
        /// What was tried.
        action: &'static str,
        /// On which stream.
        stream: String,
        /// Why.
        source: async_nats::Error,
    },
    /// The defaults could not be written.
    #[error("cannot write the channel defaults of space {space}: {source}")]
    Defaults {
        /// The space.
        space: String,
        /// Why.
        source: async_nats::Error,
    },
}

/// Makes every stream and bucket of the space and writes the channel defaults, where they are not there yet. Repeating
/// it changes nothing.
///
/// # Errors
/// See [`StreamFault`]; a stream that exists with another configuration is named and left alone.
pub async fn ensure_space(js: &jetstream::Context, space: &Space, settings: &SpaceSettings) -> Result<(), StreamFault> {
    settings.check()?;
    for config in layout::all(space, settings) {
        ensure_stream(js, &config).await?;
    }
    write_defaults(js, space, settings).await
}

/// Every stream configuration [`ensure_space`] would make.
///
/// # Errors
/// [`StreamFault::Setting`] when a setting makes no sense.
pub fn stream_configs(space: &Space, settings: &SpaceSettings) -> Result<Vec<stream::Config>, StreamFault> {
    settings.check()?;
    Ok(layout::all(space, settings))
}

async fn ensure_stream(js: &jetstream::Context, wanted: &stream::Config) -> Result<(), StreamFault> {
    let fault = |action, source: async_nats::Error| StreamFault::Broker { action, stream: wanted.name.clone(), source };
    if let Some(found) = find_stream(js, &wanted.name).await? {
        return compare::check(wanted, &found, compare::When::Found);
    }
    let made = match js.create_stream(wanted.clone()).await {
        Ok(made) => made.cached_info().config.clone(),
        // Somebody else made it between the look and the try: it is judged like one that was there.
        Err(error) if name_exists(&error.kind()) => {
            let found = find_stream(js, &wanted.name).await?.ok_or_else(|| fault("create", error.into()))?;
            return compare::check(wanted, &found, compare::When::Found);
        }
        Err(error) => return Err(fault("create", error.into())),
    };
    compare::check(wanted, &made, compare::When::Made)
}

fn name_exists(kind: &CreateStreamErrorKind) -> bool {
    matches!(kind, CreateStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NAME_EXIST)
}

async fn find_stream(js: &jetstream::Context, name: &str) -> Result<Option<stream::Config>, StreamFault> {
    use async_nats::jetstream::context::GetStreamErrorKind;
    let error = match js.get_stream(name).await {
        Ok(found) => return Ok(Some(found.cached_info().config.clone())),
        Err(error) => error,
    };
    let absent = matches!(error.kind(), GetStreamErrorKind::JetStream(cause)
        if cause.error_code() == ErrorCode::STREAM_NOT_FOUND);
    if absent {
        return Ok(None);
    }
    Err(StreamFault::Broker { action: "look at", stream: name.to_owned(), source: error.into() })
}

/// Creates the defaults row unless there is one: an operator may have changed it since.
async fn write_defaults(js: &jetstream::Context, space: &Space, settings: &SpaceSettings) -> Result<(), StreamFault> {
    let fault = |source: async_nats::Error| StreamFault::Defaults { space: space.to_string(), source };
    let defaults = ChannelDefaults { delivery_class: Some(settings.default_class), ..ChannelDefaults::default() };
    let row = serde_json::to_vec(&defaults).map_err(|error| fault(error.into()))?;
    match crate::rows::create(js, &Bucket::Channels.subject(space, CHANNEL_DEFAULTS_KEY), Bytes::from(row)).await {
        Ok(_) | Err(crate::rows::RowFault::Conflict { .. }) => Ok(()),
        Err(error) => Err(fault(error.into())),
    }
}
