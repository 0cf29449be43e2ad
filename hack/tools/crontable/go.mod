// The table of the cron library that Kubernetes uses, which pkg/cron is compared with.
module crane.io/crane/hack/tools/crontable

go 1.26.0

require github.com/robfig/cron/v3 v3.0.1
