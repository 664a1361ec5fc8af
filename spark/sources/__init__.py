"""RocketMQ for Spark: formats of PySpark's Python Data Source API, for any RocketMQ cluster.

    registration     register(spark): makes the formats known to a session       driver
    data_source      what the formats' DataSource classes share                  driver, executors
    options          options of the formats, checked; connection and secrets     driver
    errors           what can go wrong, as sentences for people                  both
    cluster          the client: routes, offsets, pulls; failover and retries    both
    positions        where a read starts and ends                                driver
    ranges           a range of a queue for each task                            driver
    queue_reader     a range as decoded messages; retention is never silent      executors
    pulled_rows      ordinary records of pulls as columns, many at once          executors
    rows             the columns; messages to Arrow batches                      executors
    bodies           compressed bodies                                           executors
    pushed_filters   what of a WHERE clause the source does itself               both
    rocketmq         the format `rocketmq`: batch reads                          both
    rocketmq_log     the format `rocketmq_log`: commit-log files, and their damage    both
    log_files        which files there are, and what is missing between them     driver
    log_notes        parts of the log that its broker passes over, or will cut off    driver
    log_filter       what of a WHERE clause leaves out files and records         both
    log_window       a file's bytes, and which cannot be read                    executors
    log_scan         a file's records and damage, in their order                 executors
    log_search       where records go on behind damage                           executors
    log_rows         records of a file as Arrow batches; rows of damage          executors
    log_columns      ordinary records as columns, many at once                   executors
    stream           the format `rocketmq`: readStream                           both
    package_zip      what executors need, for --py-files                         no Spark
    rocketmq_dumps   the format `rocketmq_dumps`: metrics dumps, typed           both
    dump_schema      its columns                                                 both
    write            the format `rocketmq`: write and writeStream                both
    outgoing         rows as messages to send                                    both
    queue_sender     sends them, at least once                                   executors

Options, guarantees and errors: docs/spark_sources.md. Unlike the rest of spark/ this package speaks
RocketMQ's protocol: it imports remoting, the record layout of store and the admin client of tools;
never the report, which knows nothing of it.
"""
