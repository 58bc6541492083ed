//! The app by its labels, as people and screen readers find it, and its pictures. No window: frames are drawn on a software adapter.

mod opening;
mod pictures;
mod timeline;
